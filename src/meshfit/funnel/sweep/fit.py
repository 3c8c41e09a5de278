"""``meshfit fit`` and ``meshfit run``: plan, shortlist, run for real, compare, name one winner."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from meshfit.compare.candidate import MeasuredCandidate, measured_candidate
from meshfit.compare.choose import Choice, choose
from meshfit.errors import InputError, NothingFitsError
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.plan.plan_document import plan_document
from meshfit.funnel.space.calibrating import store
from meshfit.funnel.space.planning import Plan, make_plan
from meshfit.funnel.sweep.fit_document import fit_document
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.handover import export_winner
from meshfit.funnel.sweep.runner import Here, SweepRunner
from meshfit.funnel.sweep.shortlist import shortlist
from meshfit.funnel.sweep.sweep import SweepEnd, left_to_run
from meshfit.funnel.sweep.sweep_plan import make_sweep_plan, plan_hash, plan_in
from meshfit.funnel.sweep.tasks import Task, TaskList
from meshfit.job.spec import Job
from meshfit.lab.machine import lab_in_use
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.files import write_json_atomically
from meshfit.record.lock import folder_lock
from meshfit.record.schema import SweepPlan
from meshfit.record.store import RecordStore
from meshfit.report.documents.fit import FitDocument
from meshfit.report.page.page import render_page
from meshfit.units import format_bytes, format_duration

START_UP_S = 20.0
"""Guess of what one launch takes before its first step, for the announcement of the cost."""


HERE = Here()

LayoutChooser = Callable[[], tuple[list[LayoutSpec], Mapping[str, Any]]]
"""Gives the layouts to run and the plan document they came from."""


@dataclass(frozen=True, kw_only=True)
class FitEnd:
    """The comparison as a document (``fit --json``) and where its files are."""

    document: FitDocument
    folder: RunFolder
    choice: Choice
    candidates: tuple[MeasuredCandidate, ...]


def fit(job: Job, *, out: Path | None, console: Console, runner: SweepRunner = HERE) -> FitEnd:
    """The whole funnel for ``job``; resumes a sweep of the same plan that is in its folder.

    Raises:
        InputError: the job can't be run here, or the folder holds another plan.
        NothingFitsError: no legal layout fits the memory.
        RunError: what every launch rests on failed.
    """
    key = plan_hash(job)
    return _sweep(job, key, lambda: _shortlisted(job), out=out, console=console, runner=runner)


def run_one(job: Job, *, out: Path | None, console: Console, runner: SweepRunner = HERE) -> FitEnd:
    """``job.layout`` alone, run and proved like a candidate of a sweep.

    Raises:
        InputError: the job names no layout, or an illegal one.
        RunError: what the launch rests on failed.
    """
    layout = job.layout
    if layout is None:
        raise InputError("no layout to run: give `layout:` in the job or --layout tp=4,pp=2")
    return fit_layouts(job, [layout], out=out, console=console, runner=runner)


def fit_layouts(
    job: Job,
    layouts: Sequence[LayoutSpec],
    *,
    out: Path | None,
    console: Console,
    runner: SweepRunner = HERE,
) -> FitEnd:
    """Given layouts instead of a shortlist, run, proved and compared.

    Raises:
        InputError: one of them is illegal, or as ``fit``.
        RunError: what every launch rests on failed.
    """
    for layout in layouts:
        require_legal(job, layout)
    key = plan_hash(job, only=layouts)
    chosen = list(layouts)
    return _sweep(job, key, lambda: (chosen, {}), out=out, console=console, runner=runner)


def _sweep(
    job: Job,
    key: str,
    choose_layouts: LayoutChooser,
    *,
    out: Path | None,
    console: Console,
    runner: SweepRunner,
) -> FitEnd:
    job = runner.placed(job)
    folder = RunFolder(out) if out else RunFolder.of_plan(job.name, key)
    with lab_in_use(job.topology.lab), folder_lock(folder.root):
        plan = plan_in(folder.plan, key) or _decide(job, key, folder, choose_layouts)
        tasks = list(TaskList(job, plan, folder))
        left = left_to_run(tasks, RecordStore(folder.root).records(key))
        if left:
            _announce(job, plan, left, console)
        end = runner.run(job, tasks, folder=folder, console=console)
        return _conclude(job, plan, end, folder)


def _decide(job: Job, key: str, folder: RunFolder, choose_layouts: LayoutChooser) -> SweepPlan:
    """A new plan, on the disk before anything runs."""
    layouts, document = choose_layouts()
    plan = make_sweep_plan(job, key, layouts, document)
    write_json_atomically(folder.plan, plan)
    return plan


def _shortlisted(job: Job) -> tuple[list[LayoutSpec], Mapping[str, Any]]:
    """The layouts to run, the baseline first, and the plan they came from as a document."""
    plan = make_plan(job)
    if job.baseline is not None:
        require_legal(job, job.baseline, what="baseline")
    picked = shortlist(plan, job.run.shortlist, besides=job.baseline)
    if not picked:
        raise NothingFitsError(_nothing_fits(plan))
    first = [job.baseline] if job.baseline is not None else []
    return first + [plan.layout(index) for index in picked], plan_document(plan)


def _nothing_fits(plan: Plan) -> str:
    best = int(plan.order[0])
    needed_bytes = plan.estimates.prediction(best).memory_total.middle
    capacity_bytes = plan.job.topology.accelerator.memory_bytes
    return (
        f"none of {len(plan)} legal layouts fits: {plan.layout(best).label} needs "
        f"{format_bytes(needed_bytes)} of {format_bytes(capacity_bytes)}; more ranks, a smaller "
        f"micro-batch, recompute or a shorter sequence need less"
    )


def _announce(job: Job, plan: SweepPlan, left: Sequence[Task], console: Console) -> None:
    """Prints what the launches that are left will cost before they cost it."""
    world = job.topology.num_accelerators
    unit = "GPU" if job.topology.accelerator.device_type == "cuda" else "rank"
    expected = {p.layout.label: p.prediction.step_time.middle for p in plan.layouts}
    seconds = sum(
        START_UP_S + task.request.steps * expected.get(task.request.candidate, 0.0) for task in left
    )
    console.print(
        f"{len(plan.layouts)} layouts x {job.run.repeats} repeats on {world} ranks: "
        f"{len(left)} launches, about {format_duration(seconds)} "
        f"({seconds * world / 3600:.2g} {unit}-h) if predictions hold and each takes "
        f"{START_UP_S:.0f} s to start",
        highlight=False,
        soft_wrap=True,
    )


def _conclude(job: Job, plan: SweepPlan, end: SweepEnd, folder: RunFolder) -> FitEnd:
    """Compares what ran and writes the document, the page and the winner's launch files."""
    candidates = _measured(job, plan, end)
    choice = choose(
        candidates,
        capacity_bytes=plan.capacity_bytes,
        headroom_fraction=job.headroom_fraction,
    )
    document = fit_document(job, plan, end, candidates, choice)
    if choice.winner is not None:
        try:
            export_winner(job, choice.winner, folder)
        except InputError as error:  # the run stands, whether or not a script can be written of it
            document["notes"].append(f"No launch files were written: {error}.")
    _remember(job, candidates, plan.plan_hash, document)
    write_json_atomically(folder.document, document)
    folder.page.write_text(render_page(document), encoding="utf-8")
    return FitEnd(document=document, folder=folder, choice=choice, candidates=tuple(candidates))


def _remember(
    job: Job, candidates: Sequence[MeasuredCandidate], plan_hash: str, document: FitDocument
) -> None:
    """Adds what was measured to the calibration file, for later plans; the document says so, or in a
    note why not."""
    if job.calibration is None:
        return
    try:
        layouts = store(job, candidates, plan_hash)
    except InputError as error:
        document["notes"].append(f"What was measured is not remembered for later plans: {error}.")
    else:
        document["remembered"] = {"file": str(job.calibration), "layouts": layouts}


def _measured(job: Job, plan: SweepPlan, end: SweepEnd) -> list[MeasuredCandidate]:
    """One row a layout that was launched, in plan order."""
    rows_of = {
        planned.layout.label: [
            row
            for row in end.records
            if row.candidate == planned.layout.label and row.purpose in ("measure", "parity")
        ]
        for planned in plan.layouts
    }
    return [
        measured_candidate(rows, warmup_steps=job.run.warmup_steps)
        for rows in rows_of.values()
        if rows
    ]
