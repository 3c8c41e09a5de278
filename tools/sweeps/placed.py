"""Layouts really run with their ranks laid in given orders, beside what was predicted of each."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from meshfit.compare.candidate import MeasuredCandidate
from meshfit.errors import RunError
from meshfit.funnel.sweep.fit import fit_layouts
from meshfit.job.layout import layout_of_keys, parse_layout_text
from meshfit.job.spec import Job
from meshfit.mesh.orders import levels_of_axes, whole_order

from .predicted import PredictedStep

Placed = tuple[str, str]
"""A layout as ``--layout`` takes it, and the axes of its rank order (empty: the engine's own)."""


def run_placed(
    job: Job, placed: Sequence[Placed], *, out: Path, console: Console
) -> list[PredictedStep]:
    """Every layout in its rank order, in the order given; resumes what is in ``out``.

    Raises:
        InputError: a layout is illegal, or the job cannot be run here.
        RunError: a launch failed, or computed something else than one process.
    """
    found: dict[Placed, PredictedStep] = {}
    for axes in dict.fromkeys(order for _, order in placed):
        ordered = in_rank_order(job, axes)
        mine = [one for one in placed if one[1] == axes]
        layouts = [layout_of_keys(parse_layout_text(text), job.profile) for text, _ in mine]
        folder = out / (axes.replace(",", "-") or "own-order")
        end = fit_layouts(ordered, layouts, out=folder, console=console)
        by_layout = {one.layout: one for one in end.candidates}
        for one, layout in zip(mine, layouts, strict=True):
            found[one] = _step(ordered, by_layout[layout])
    return [found[one] for one in placed]


def in_rank_order(job: Job, axes: str) -> Job:
    """The job with its ranks laid in another order; empty: as it is."""
    if not axes:
        return job
    order = whole_order(axes.split(","), job.profile.rank_order)
    return replace(job, profile=replace(job.profile, rank_order=order))


def _step(job: Job, candidate: MeasuredCandidate) -> PredictedStep:
    layout, predicted, measured = candidate.layout, candidate.predicted, candidate.step_time_s
    is_right = candidate.parity is not None and candidate.parity.ok
    if candidate.outcome != "ok" or not is_right or predicted is None or measured is None:
        raise RunError(f"{layout.label}: {candidate.outcome}, so it cannot be compared")
    order = job.profile.rank_order
    return PredictedStep(
        label=layout.label,
        rank_order=tuple(axis for axis in order if getattr(layout, axis) > 1),
        levels=levels_of_axes(layout, job.topology, order, job.profile.expert_fold),
        predicted_s=predicted.step_time.middle,
        exposed_s=sum(predicted.time.exposed.values()),
        measured_s=measured,
    )
