"""The terminal view of ``plan --sensitivity``."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.report.parts import words
from meshfit.report.parts.cells import KeysText
from meshfit.report.parts.titled import titled_table
from meshfit.units import format_duration

_MEANINGS = {
    "expert_imbalance": "tokens of the fullest expert-parallel rank over an even share",
    "straggler": "how many times as long the slowest rank computes",
    "contention": "how many times as long collectives between hosts take",
    "length_imbalance": "attention of the rank with the longest documents over the mean",
}


def sensitivity_view(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A table an assumption: step time and rank of the leaders, and where the winner changes."""
    if not rows:
        return Text("No assumption can move what fits here.", style="dim")
    parts: list[RenderableType] = []
    for row in rows:
        parts += [_table(row), *_changes(row)]
    return Group(*parts)


def _table(row: Mapping[str, Any]) -> Table:
    name = row["assumption"]
    planned = "" if row["planned"] is None else f"; the plan has {row['planned']:g}"
    table = titled_table(f"{name}: {_MEANINGS[name]}{planned}")
    table.add_column("layout", overflow="fold")
    for value in row["values"]:
        table.add_column(f"{value:g}", justify="right")
    for leader in row["leaders"]:
        figures = zip(leader["step_time"], leader["rank"], strict=True)
        table.add_row(
            KeysText(leader["layout"]),
            *(f"{format_duration(seconds)} #{rank}" for seconds, rank in figures),
        )
    return table


def _changes(row: Mapping[str, Any]) -> list[Text]:
    if not row["changes"]:
        first, last = row["values"][0], row["values"][-1]
        return [Text(f"The winner stays the same from {first:g} to {last:g}.\n")]
    return [
        Text(
            f"From {row['assumption']} {change['at']:.3g} on, "
            f"{words.layout(change['to']['layout'])} is faster than "
            f"{words.layout(change['from']['layout'])}.\n"
        )
        for change in row["changes"]
    ]
