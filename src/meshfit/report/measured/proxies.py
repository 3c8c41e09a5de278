"""Layouts judged by smaller runs: what ``meshfit fit --proxy`` shows."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from meshfit.report.parts import words
from meshfit.report.parts.titled import titled_table
from meshfit.units import format_percent

_TEXTS = ("layout", "by", "outcome")


def proxies_view(document: dict[str, Any]) -> RenderableType:
    """Every layout with the step that its proxy composes, and what the proxy was."""
    nodes = document["nodes"]
    table = titled_table(
        f"Steps of the whole job, composed from proxies on {nodes} node{'s' if nodes > 1 else ''}",
        "step: as predicted, times what the proxy took over what was predicted of it; unmeasured: share "
        "of the predicted step that the proxy had no time of, for which the prediction's width stays",
    )
    for name in ("layout", "step", "range", "by", "its step", "factor", "unmeasured", "outcome"):
        table.add_column(name, overflow="fold", justify="left" if name in _TEXTS else "right")
    for one in document["candidates"]:
        table.add_row(*_cells(one))
    notes = [
        f"{one['label']}: {one['failure']}" for one in document["candidates"] if one["failure"]
    ]
    return Group(table, Text(document["reason"]), *map(Text, notes))


def _cells(one: dict[str, Any]) -> list[str]:
    step, proxy = one["step_time"], one["proxy"]
    return [
        one["label"],
        words.duration(step["middle"]) if step else words.ABSENT,
        words.interval({"step_time": step}, "step_time"),
        f"{proxy['label']}, {proxy['num_hidden_layers']} layers" if proxy else words.ABSENT,
        words.duration(proxy["step_time"]) if proxy else words.ABSENT,
        f"{one['factor']:.2f}" if one["factor"] else words.ABSENT,
        format_percent(one["unmeasured"]) if step else words.ABSENT,
        _outcome(one),
    ]


def _outcome(one: dict[str, Any]) -> str:
    if one["proxy"] is None:
        return "no proxy"
    parity = {True: ", parity ok", False: ", parity failed", None: ""}[one["parity"]]
    return words.OUTCOMES[one["outcome"]] + parity
