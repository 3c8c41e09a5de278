"""Cells that tables of layouts share."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.style import StyleType
from rich.text import Text

from meshfit.report.parts import words

VERDICT_STYLES = {"fits": "green", "tight": "yellow", "does_not_fit": "red", "invalid": "red"}

_BAR_CELLS = 8


class KeysText:
    """A layout as ``--layout`` takes it; too long for its cell, it goes on in a new line after a comma."""

    def __init__(self, keys: Mapping[str, Any], *, style: StyleType = "") -> None:
        self._text = words.layout(keys)
        self._style = style

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max(len(part) + 1 for part in self._text.split(","))
        return Measurement(longest, len(self._text)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [""]
        for part in self._text.replace(",", ",\0").split("\0"):
            if lines[-1] and len(lines[-1]) + len(part) > options.max_width:
                lines.append("")
            lines[-1] += part
        yield Text("\n".join(lines), style=self._style)


def layout_cell(candidate: Mapping[str, Any], won: bool = False) -> RenderableType:
    """Its strategies, what it is called, and its degrees and policies below."""
    text = Text(candidate["family"], style="bold green" if won else "bold")
    names = str(candidate.get("name") or "").split(", ")
    if candidate.get("baseline", False):
        names = ["baseline", *(name for name in names if name != "baseline")]
    if any(names):
        text.append(f" ({', '.join(filter(None, names))})", style="cyan")
    return Group(text, KeysText(candidate["layout"], style="dim"))


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
