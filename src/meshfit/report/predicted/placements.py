"""Placements of a layout for the terminal."""

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.units import format_duration, format_percent

MOST_ROWS = 8


def placements_view(document: dict[str, Any]) -> RenderableType:
    """The best placements, which axis sits in which domain, and what the others cost."""
    table = Table(
        title=f"Placements of {document['label']}", title_justify="left", box=box.SIMPLE_HEAD
    )
    for name in ("axes, outermost first", "each axis within", "step", "exposed", "slower by", ""):
        table.add_column(name)
    for one in document["placements"][:MOST_ROWS]:
        table.add_row(
            " > ".join(one["order"]) or "one rank",
            ", ".join(f"{axis}: {level}" for axis, level in one["levels"].items()),
            format_duration(one["step_time"]),
            format_duration(one["exposed"]),
            format_percent(one["slower"]),
            "engine's order" if one["engine_order"] else "",
        )
    words = _how_to_get(document["placements"][0], settable=document["settable"])
    hidden = len(document["placements"]) - MOST_ROWS
    left_out = f"; {hidden} more, slower" if hidden > 0 else ""
    return Group(table, Text(words + left_out))


def _how_to_get(best: dict[str, Any], *, settable: bool) -> str:
    """What is to be done for the fastest placement."""
    if best["engine_order"]:
        return "the engine's own order is the fastest: ranks fill hosts in order"
    if settable:
        return f"for the fastest: --rank-order {','.join(best['order'])}, or rank_order in the job"
    return (
        "the fastest is not the engine's order; ranks by accelerator under it: by_rank_order of "
        "--json"
    )
