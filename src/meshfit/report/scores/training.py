"""Scores of predictions against published measurements, for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from meshfit.report.scores.sections import (
    Section,
    error_cells,
    not_modelled_section,
    percent,
    sections_view,
    target_section,
)
from meshfit.validate.document import ValidationDocument

_ERRORS = (
    "family", "configurations", "of rows", "median", "90th percentile", "bias", "in the interval",
)  # fmt: skip


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
                *error_cells(score),
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
