"""Tables of scores, which predictions of every kind share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from meshfit.report.parts.words import ABSENT
from meshfit.validate.document import TargetDocument


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table: a title, column heads (all but the first are figures) and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def sections_view(
    sections: Sequence[Section], targets: Sequence[TargetDocument] | None
) -> RenderableType:
    """Tables for a terminal, and in a last line how many targets are reached; None: not asked."""
    parts: list[RenderableType] = []
    for section in sections:
        table = Table(
            title=section.title, title_justify="left", box=box.SIMPLE_HEAD, caption=section.note
        )
        for index, name in enumerate(section.columns):
            table.add_column(name, justify="right" if index else "left", overflow="fold")
        for row in section.rows:
            table.add_row(*map(escape, row))
        parts.append(table)
    if targets is not None:
        parts.append(_verdict(targets))
    return Group(*parts)


def not_modelled_section(reasons: Mapping[str, int]) -> Section:
    """How many rows each reason left out, the commonest first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return Section(
        title="Rows not modelled",
        columns=("reason", "rows"),
        rows=[(reason, str(count)) for reason, count in ordered],
    )


def target_section(found: Sequence[TargetDocument]) -> Section:
    return Section(
        title="Targets",
        columns=("target", "bound", "result", ""),
        rows=[
            (target["name"], target["bound"], _value(target), _word(target["reached"]))
            for target in found
        ],
    )


def _value(target: TargetDocument) -> str:
    if target["is_count"] and target["value"] is not None:
        return f"{target['value']:.0f}"
    return percent(target["value"], signed=target["bound"].startswith("±"))


def _word(reached: bool | None) -> str:
    return "no rows" if reached is None else "reached" if reached else "missed"


def _verdict(found: Sequence[TargetDocument]) -> Text:
    missed = sum(not target["reached"] for target in found)
    if not missed:
        return Text(f"All {len(found)} targets are reached.", style="green")
    return Text(f"{missed} of {len(found)} targets are missed.", style="bold red")


def percent(value: float | None, *, signed: bool = False, digits: int = 1) -> str:
    """A share in %, or the word for what is absent."""
    if value is None:
        return ABSENT
    return f"{value:+.{digits}%}" if signed else f"{value:.{digits}%}"


def error_cells(score: Mapping[str, Any]) -> tuple[str, ...]:
    """Counts, errors and intervals of one family: configurations, rows, median, 90th percentile, bias,
    and the share inside the predicted interval."""
    return (
        str(score["configurations"]),
        str(score["rows"]),
        percent(score.get("median_abs_error")),
        percent(score.get("p90_abs_error")),
        percent(score.get("bias"), signed=True),
        percent(score.get("interval_coverage"), digits=0),
    )
