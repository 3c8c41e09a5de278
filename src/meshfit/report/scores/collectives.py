"""Scores of predicted collectives, for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from meshfit.report.scores.sections import (
    Section,
    error_cells,
    not_modelled_section,
    sections_view,
    target_section,
)
from meshfit.units import format_bytes
from meshfit.validate.collectives.document import CollectivesDocument

_COLUMNS = ("points", "of rows", "median", "90th percentile", "bias", "in the interval")


def collectives_sections(document: CollectivesDocument) -> list[Section]:
    """Every table, in order; tables without rows are left out."""
    sections = [
        _errors("Collectives: predicted over measured", "family", document["summary"]),
        *_taken_apart("system", document["by_system"]),
        *_taken_apart("collective", document["by_collective"]),
        *_taken_apart("size", document["by_size"]),
        not_modelled_section(document["not_modelled"]),
        target_section(document.get("targets", [])),
    ]
    return [section for section in sections if section.rows]


def collectives_view(document: CollectivesDocument) -> RenderableType:
    """The tables for a terminal."""
    return sections_view(collectives_sections(document), document.get("targets"))


def _taken_apart(by: str, scores: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Section]:
    return [
        _errors(f"Formula by {by}, each system left out", by, scores["formula"]),
        _errors(f"Interpolation by {by}, on held-back sizes", by, scores["interpolation"]),
    ]


def _errors(title: str, by: str, scores: Mapping[str, Mapping[str, Any]]) -> Section:
    return Section(
        title=title,
        columns=(by, *_COLUMNS),
        rows=[
            (
                format_bytes(int(name)) if by == "size" else name,
                *error_cells(score),
            )
            for name, score in scores.items()
        ],
    )
