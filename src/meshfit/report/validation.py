"""Scores of predictions against published measurements, for the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from meshfit.report.words import ABSENT
from meshfit.validate.document import TargetDocument, ValidationDocument

_ERRORS = (
    "family", "configurations", "of rows", "median", "90th percentile", "bias", "in the interval",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table: a title, column heads (all but the first are figures) and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def validation_sections(document: ValidationDocument) -> list[Section]:
    """Every table of a validation, in order; tables without rows are left out."""
    scores, baselines = document["scores"], document["baselines"]
    sections = [
        _errors("Memory", scores["memory"], baselines["memory"], "textbook"),
        _errors("Step time", scores["time"], baselines["time"], "constant share of peak"),
        _left_out(document.get("left_out", {})),
        _order(scores, baselines),
        _fits(scores["fits"], baselines["fits"]),
        not_modelled_section(scores["not_modelled"]),
        target_section(document.get("targets", [])),
    ]
    return [section for section in sections if section.rows]


def validation_view(document: ValidationDocument) -> RenderableType:
    """The tables for a terminal."""
    return sections_view(validation_sections(document), document.get("targets"))


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


def _errors(
    title: str,
    scores: Mapping[str, Mapping[str, Any]],
    baseline: Mapping[str, Mapping[str, Any]],
    baseline_name: str,
) -> Section:
    rows = []
    for name, score in scores.items():
        plain = baseline.get(name, {})
        rows.append(
            (
                name,
                str(score["configurations"]),
                str(score["rows"]),
                percent(score.get("median_abs_error")),
                percent(score.get("p90_abs_error")),
                percent(score.get("bias"), signed=True),
                percent(score.get("interval_coverage"), digits=0),
                f"{percent(plain.get('median_abs_error'))} / {percent(plain.get('p90_abs_error'))}",
            )
        )
    return Section(
        title=f"{title}: predicted over measured",
        columns=(*_ERRORS, baseline_name),
        rows=rows,
        note=f"{baseline_name}: median / 90th percentile of the plain rule on the same rows.",
    )


def _left_out(scores: Mapping[str, Mapping[str, Any]]) -> Section:
    return Section(
        title="Step time of each family with constants fitted without it",
        columns=("family", "configurations", "median", "90th percentile", "bias"),
        rows=[
            (
                name,
                str(score["configurations"]),
                percent(score.get("median_abs_error")),
                percent(score.get("p90_abs_error")),
                percent(score.get("bias"), signed=True),
            )
            for name, score in scores.items()
        ],
    )


def _order(scores: Mapping[str, Any], baselines: Mapping[str, Any]) -> Section:
    rows = []
    for key, name in (("order", "narrow"), ("order_wide", "wide")):
        ours, naive = scores[key], baselines[key]
        if not ours["pairs"]:
            continue
        rows.append(_order_row(f"{name}: meshfit", ours))
        rows.append(_order_row(f"{name}: {naive['rule']}", naive))
    return Section(
        title="Order: which of two layouts is faster",
        columns=("", "pairs", "groups", "pairs right", "over groups", "best found", "mean regret"),
        rows=rows,
        note="Beside each the naive rule that orders most pairs of this file.",
    )


def _order_row(name: str, score: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        str(score["pairs"]),
        str(score["groups"]),
        percent(score["pairs_right"]),
        percent(score["groups_right"]),
        percent(score["top1_within_2_percent"], digits=0),
        percent(score["mean_regret"]),
    )


def _fits(ours: Mapping[str, int], textbook: Mapping[str, int]) -> Section:
    def row(name: str, counts: Mapping[str, int]) -> tuple[str, ...]:
        return (
            name,
            f"{counts['oom_caught']} of {counts['oom_rows']}",
            str(counts["oom_called_comfortable"]),
            f"{counts['ok_kept']} of {counts['ok_rows']}",
            f"{counts['full_agree']} of {counts['full_rows']}",
            str(counts["unmodelled"]),
        )

    judged = ours["ok_rows"] or ours["oom_rows"]
    return Section(
        title="What fits",
        columns=(
            "",
            "out of memory: caught",
            "called fits",
            "ran: kept",
            "agrees at 0.90 of capacity",
            "without verdict",
        ),
        rows=[row("meshfit", ours), row("textbook", textbook)] if judged else [],
    )


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
