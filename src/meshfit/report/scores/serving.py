"""Scores of predicted servers, for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from meshfit.report.scores.sections import (
    Section,
    not_modelled_section,
    percent,
    sections_view,
    target_section,
)
from meshfit.validate.serving.document import ServingDocument

_HEADS = ("rows", "points", "tpot median", "90th", "bias", "ttft median", "90th", "bias")


def serving_sections(document: ServingDocument) -> list[Section]:
    """Every table, in order; tables without rows are left out."""
    note = f"loop {document['loop']}"
    sections = [
        _errors("Servers: predicted over measured", "rows of", document["summary"], note),
        _errors("By system", "system", document["by_system"]),
        _errors("By backend", "backend", document["by_backend"]),
        _errors("By model", "model", document["by_model"]),
        _choices(document["layouts"]),
        not_modelled_section(document["not_modelled"]),
        target_section(document.get("targets", [])),
    ]
    return [section for section in sections if section.rows]


def serving_scores_view(document: ServingDocument) -> RenderableType:
    """The tables for a terminal."""
    return sections_view(serving_sections(document), document.get("targets"))


def _errors(
    title: str, by: str, scores: Mapping[str, Mapping[str, Any]], note: str = ""
) -> Section:
    return Section(
        title=title,
        columns=(by, *_HEADS),
        rows=[
            (
                name,
                str(score["rows"]),
                str(score["configurations"]),
                *(
                    percent(score.get(f"{metric}_{kind}"), signed=kind == "bias")
                    for metric in ("tpot", "ttft")
                    for kind in ("median_abs_error", "p90_abs_error", "bias")
                ),
            )
            for name, score in scores.items()
        ],
        note=note,
    )


def _choices(layouts: Mapping[str, Mapping[str, Any]]) -> Section:
    return Section(
        title="Groups with several layouts: regret of the layout predicted best, and order",
        columns=(
            "by",
            "groups",
            "of 4 and more",
            "median regret",
            "mean regret",
            "pairs in order",
        ),
        rows=[
            (
                name.replace("_", " "),
                str(score["groups"]),
                str(score["groups_of_four_or_more"]),
                percent(score["median_regret"]),
                percent(score["mean_regret"]),
                percent(score["pairs_right"], digits=0),
            )
            for name, score in layouts.items()
        ],
    )
