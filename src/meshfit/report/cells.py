"""Cells that tables of layouts share."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from meshfit.report import words

VERDICT_STYLES = {"fits": "green", "tight": "yellow", "does_not_fit": "red", "invalid": "red"}

_BAR_CELLS = 8


def layout_cell(candidate: Mapping[str, Any], won: bool = False) -> Text:
    """Its strategies, what it is called, and its degrees and policies below."""
    text = Text(candidate["family"], style="bold green" if won else "bold")
    name = "baseline" if candidate.get("baseline", False) else candidate.get("name")
    if name is not None:
        text.append(f" ({name})", style="cyan")
    return text.append("\n").append(words.layout(candidate["layout"]), style="not bold default dim")


def stacked_cell(value: str, below: str) -> Text:
    """A figure with a fainter line below, where there is one."""
    return Text.assemble(value, (f"\n{below}", "dim")) if below else Text(value)


def memory_bar(memory: Mapping[str, int | None], verdict: str) -> Text:
    """The verdict beside a bar of how full the fullest rank's device is, and both sizes below."""
    total, capacity = memory.get("total"), memory.get("capacity")
    style = VERDICT_STYLES.get(verdict, "")
    phrase = (words.VERDICTS.get(verdict, verdict), style)
    if not capacity or total is None:
        return Text.assemble(phrase, f"\n{words.size(total)}")
    filled = min(_BAR_CELLS, max(1, round(_BAR_CELLS * total / capacity)))
    return Text.assemble(
        ("█" * filled, style),
        ("░" * (_BAR_CELLS - filled) + " ", "dim"),
        phrase,
        f"\n{words.size(total)} of {words.size(capacity)}",
    )
