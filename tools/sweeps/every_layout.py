"""A sweep of every legal layout of a job: what shortlists are judged by.

``fit`` exists so that nobody needs this; it shows how much that costs.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import pydantic_core
from rich.console import Console

from meshfit import __version__
from meshfit.compare.candidate import MeasuredCandidate
from meshfit.errors import InputError
from meshfit.funnel.space.planning import Plan, make_plan
from meshfit.funnel.sweep.fit import fit_layouts
from meshfit.funnel.sweep.shortlist import shortlist
from meshfit.job.spec import SHORTLIST_LENGTH, Job
from meshfit.record.files import write_json_atomically
from meshfit.units import format_bandwidth

from .regret import TimedLayout

SHORTLIST_NAME = "shortlist.json"
"""In the sweep's folder: what would have been run, written before anything ran."""


class LayoutRow(TypedDict):
    """One layout; seconds of a step, without intervals. Measured ones are null where it failed."""

    layout: str
    predicted_s: float
    measured_s: float | None
    noise_s: float | None
    repeat_medians_s: list[float]
    outcome: str
    parity_ok: bool | None


class ExhaustiveDocument(TypedDict):
    """All that is kept of one sweep: figures, and predictions as they were before it ran."""

    schema_version: int
    job: str
    meshfit: str
    measured_at: str
    machine: str
    software: dict[str, str]
    ranks: int
    repeats: int
    timed_steps: int
    links: list[str]
    legal: int
    shortlist: list[str]
    rows: list[LayoutRow]


def run_every_layout(
    job: Job, *, out: Path, console: Console, most: int | None = None
) -> ExhaustiveDocument:
    """Runs every legal layout that fits, with interleaved repeats; resumes what is in ``out``.

    ``most`` runs so many of them, spread over the predicted order: to see that all works.

    Raises:
        InputError: the job cannot be run here, or is corrected by runs of itself.
        RunError: what every launch rests on failed.
    """
    if job.calibration is not None:
        raise InputError("predictions must not know what is measured: write `calibration: none`")
    plan = make_plan(job)
    order = [int(index) for index in plan.fitting_order()]
    order = order[:: math.ceil(len(order) / most)] if most else order
    layouts = [plan.layout(index) for index in order]
    listed = _as_before_the_run(out / SHORTLIST_NAME, planned_shortlist(plan))
    end = fit_layouts(job, layouts, out=out, console=console)
    return _document(job, end.candidates, legal=len(plan), listed=listed)


def planned_shortlist(plan: Plan) -> list[str]:
    """Labels of what ``fit`` would run of this plan."""
    return [plan.layout(index).label for index in shortlist(plan, SHORTLIST_LENGTH)]


def _as_before_the_run(path: Path, labels: list[str]) -> list[str]:
    """``labels`` where nothing has run yet, kept in ``path``; else those that are kept there."""
    if not path.exists():
        write_json_atomically(path, labels)
    kept: list[str] = pydantic_core.from_json(path.read_bytes())
    return kept


def predicted_today(job: Job) -> tuple[dict[str, float], list[str]]:
    """Label -> seconds of a step, and the labels of the shortlist, by the formulas of this meshfit."""
    plan = make_plan(job)
    steps = {
        plan.layout(index).label: float(plan.estimates.step_middle_s[index])
        for index in range(len(plan))
    }
    return steps, planned_shortlist(plan)


def timed_layouts(
    document: ExhaustiveDocument, predicted_s: dict[str, float] | None = None
) -> list[TimedLayout]:
    """Layouts that were measured, with the predictions of the document or with other ones.

    A layout that is no longer legal, or whose loss was wrong, is left out.
    """
    if predicted_s is None:
        predicted_s = {row["layout"]: row["predicted_s"] for row in document["rows"]}
    return [
        TimedLayout(
            label=row["layout"],
            predicted_s=predicted_s[row["layout"]],
            measured_s=row["measured_s"],
            noise_s=row["noise_s"] or 0.0,
            repeat_medians_s=tuple(row["repeat_medians_s"]),
        )
        for row in document["rows"]
        if row["outcome"] == "ok" and row["measured_s"] is not None and row["layout"] in predicted_s
    ]


def _document(
    job: Job, candidates: Sequence[MeasuredCandidate], *, legal: int, listed: Sequence[str]
) -> ExhaustiveDocument:
    environment = _environment(candidates)
    return ExhaustiveDocument(
        schema_version=1,
        job=job.name,
        meshfit=__version__,
        measured_at=datetime.now(UTC).isoformat(timespec="minutes"),
        machine=f"{environment.get('cpu')}, {environment.get('cores_usable')} cores",
        software={name: str(environment.get(name)) for name in ("torch", "python", "revision")},
        ranks=job.topology.num_accelerators,
        repeats=job.run.repeats,
        timed_steps=job.run.steps - job.run.warmup_steps,
        links=[
            f"{level.name}: {level.size} x {format_bandwidth(level.bandwidth_bytes_per_s)} a rank"
            for level in job.topology.levels
            if level.size > 1
        ],
        legal=legal,
        shortlist=list(listed),
        rows=[_row(one) for one in candidates],
    )


def _row(one: MeasuredCandidate) -> LayoutRow:
    assert one.predicted is not None
    return LayoutRow(
        layout=one.layout.label,
        predicted_s=one.predicted.step_time.middle,
        measured_s=one.step_time_s,
        noise_s=one.step_noise_s if one.step_s else None,
        repeat_medians_s=list(one.repeat_medians_s),
        outcome=one.outcome,
        parity_ok=one.parity.ok if one.parity else None,
    )


def _environment(candidates: Sequence[MeasuredCandidate]) -> dict[str, Any]:
    results = (row.result for one in candidates for row in one.records)
    return next((result.environment for result in results if result is not None), {})
