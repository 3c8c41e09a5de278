"""``meshfit fit`` and ``meshfit run``: plan, shortlist, run for real, compare, name one winner."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from meshfit.compare.candidate import MeasuredCandidate, measured_candidate
from meshfit.compare.choose import Choice, choose
from meshfit.engines.native.files import RUNNABLE_MODEL_TYPES
from meshfit.errors import InputError, NothingFitsError
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.plan.plan_document import plan_document
from meshfit.funnel.space.calibrating import store
from meshfit.funnel.space.planning import Plan, make_plan
from meshfit.funnel.sweep.fit_document import fit_document
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.handover import export_winner
from meshfit.funnel.sweep.progress import Progress
from meshfit.funnel.sweep.shortlist import shortlist
from meshfit.funnel.sweep.sweep import SweepEnd, left_to_run, run_sweep
from meshfit.funnel.sweep.sweep_plan import make_sweep_plan, plan_hash, plan_in
from meshfit.funnel.sweep.tasks import Task, TaskList
from meshfit.job.spec import Job
from meshfit.lab.hosts import launch_hosts
from meshfit.lab.machine import lab_in_use
from meshfit.launch.orphans import end_orphans
from meshfit.launch.supervise import port_problem
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.files import write_json_atomically
from meshfit.record.lock import folder_lock
from meshfit.record.schema import SweepPlan
from meshfit.record.store import RecordStore
from meshfit.report.documents import FitDocument
from meshfit.report.page import render_page
from meshfit.units import format_bytes, format_duration

START_UP_S = 20.0
"""Guess of what one launch takes before its first step, for the announcement of the cost."""


LayoutChooser = Callable[[], tuple[list[LayoutSpec], Mapping[str, Any]]]
"""Gives the layouts to run and the plan document they came from."""


@dataclass(frozen=True, kw_only=True)
class FitEnd:
    """The comparison as a document (``fit --json``) and where its files are."""

    document: FitDocument
    folder: RunFolder
    choice: Choice
    candidates: tuple[MeasuredCandidate, ...]


def fit(job: Job, *, out: Path | None, console: Console) -> FitEnd:
    """The whole funnel for ``job``; resumes a sweep of the same plan that is in its folder.

    Raises:
        InputError: the job can't be run here, or the folder holds another plan.
        NothingFitsError: no legal layout fits the memory.
        RunError: what every launch rests on failed.
    """
    return _sweep(job, plan_hash(job), lambda: _shortlisted(job), out=out, console=console)


def run_one(job: Job, *, out: Path | None, console: Console) -> FitEnd:
    """``job.layout`` alone, run and proved like a candidate of a sweep.

    Raises:
        InputError: the job names no layout, or an illegal one.
        RunError: what the launch rests on failed.
    """
    layout = job.layout
    if layout is None:
        raise InputError("no layout to run: give `layout:` in the job or --layout tp=4,pp=2")
    return fit_layouts(job, [layout], out=out, console=console)


def fit_layouts(
    job: Job, layouts: Sequence[LayoutSpec], *, out: Path | None, console: Console
) -> FitEnd:
    """Given layouts instead of a shortlist, run, proved and compared.

    Raises:
        InputError: one of them is illegal, or as ``fit``.
        RunError: what every launch rests on failed.
    """
    for layout in layouts:
        require_legal(job, layout)
    key = plan_hash(job, only=layouts)
    return _sweep(job, key, lambda: (list(layouts), {}), out=out, console=console)


def _sweep(
    job: Job, key: str, choose_layouts: LayoutChooser, *, out: Path | None, console: Console
) -> FitEnd:
    require_runnable(job)
    folder = RunFolder(out) if out else RunFolder.of_plan(job.name, key)
    with lab_in_use(job.topology.lab), folder_lock(folder.root):
        for ended in end_orphans(folder.root):
            console.print(f"ended a process left over from an earlier run: {ended}", markup=False)
        plan = plan_in(folder.plan, key) or _decide(job, key, folder, choose_layouts)
        tasks = list(TaskList(job, plan, folder))
        left = left_to_run(tasks, RecordStore(folder.root).records(key))
        if left:
            _announce(job, plan, left, console)
        end = run_sweep(
            tasks,
            run=job.run,
            folder=folder,
            progress=Progress(console),
            hosts=launch_hosts(job.topology),
        )
        return _conclude(job, plan, end, folder)


def _decide(job: Job, key: str, folder: RunFolder, choose_layouts: LayoutChooser) -> SweepPlan:
    """A new plan, on the disk before anything runs."""
    layouts, document = choose_layouts()
    plan = make_sweep_plan(job, key, layouts, document)
    write_json_atomically(folder.plan, plan)
    return plan


def require_runnable(job: Job) -> None:
    """What can be known to fail before anything is started.

    Raises:
        InputError: with what would work.
    """
    if not job.topology.is_here:
        raise InputError(
            f"real runs need the job's cluster to be this machine, but it is "
            f"{job.topology.num_accelerators} x {job.topology.accelerator.name}: `meshfit plan` "
            f"works for any cluster; for a run set `cluster: here`"
        )
    model_type = job.model.config.get("model_type")
    if model_type not in RUNNABLE_MODEL_TYPES:
        raise InputError(
            f"{job.model.name} is of model_type {model_type!r}, which this version does not run; "
            f"it runs {', '.join(RUNNABLE_MODEL_TYPES)}, and `meshfit plan` takes any"
        )
    missing = [m for m in ("torch", "transformers") if importlib.util.find_spec(m) is None]
    if missing:
        raise InputError(f"real runs need {' and '.join(missing)}: pip install 'meshfit[run]'")
    if (
        job.run.port is not None
        and job.topology.lab is None
        and (problem := port_problem(job.run.port))
    ):
        raise InputError(
            f"run.{problem}: choose another one, or leave run.port out to take a free one for each "
            f"launch"
        )


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
