"""Scaling points as a table: what ``meshfit scale`` shows."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from meshfit.report.parts import words
from meshfit.report.parts.titled import titled_table
from meshfit.units import format_percent


def scale_view(document: dict[str, Any]) -> RenderableType:
    """Every point with its denominator, and what keeps it from being compared."""
    keeps = "the global batch" if document["kind"] == "strong" else "the work per rank"
    points = document["points"]
    table = titled_table(
        f"{document['kind']} scaling along {document['axis']}: {keeps} stays",
        "100 %: the baseline's tokens/s per rank times the ranks",
    )
    for name in (
        "ranks",
        "layout",
        "hardware",
        "global batch",
        "step",
        "tokens/s",
        "100 %",
        "kept",
    ):
        table.add_column(name, overflow="fold", justify="left" if name in _TEXTS else "right")
    for point in points:
        table.add_row(
            str(point["ranks"])
            + (" (baseline)" if point["ranks"] == point["baseline_ranks"] else ""),
            point["label"],
            point["hardware"],
            f"{point['global_batch']} x {point['sequence_length']}",
            words.duration(point["step_time_s"]),
            words.rate(point["tokens_per_s"]),
            words.rate(point["denominator_tokens_per_s"]),
            format_percent(point["efficiency"]) if point["efficiency"] is not None else "refused",
        )
    notes = [f"{point['ranks']} ranks: {_note(point)}" for point in points if _note(point)]
    return Group(table, *map(Text, notes))


_TEXTS = ("layout", "hardware")


def _note(point: dict[str, Any]) -> str:
    """Why a point has no efficiency, or what else differs from the baseline."""
    if point["refused"]:
        return f"refused: {point['refused']}"
    return f"differs in {'; '.join(point['differing'])}" if point["differing"] else ""
