"""Tier 4: runs what is left of a sweep, one launch after another, and keeps a row of each.

Whatever becomes of a launch is a row, never an exception. Only the launches every other one rests
on (weights, reference) end the sweep when they fail.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from meshfit.compare.blame import nonfinite_loss
from meshfit.compare.parity import judge
from meshfit.errors import RunError
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.progress import Progress
from meshfit.funnel.sweep.routing import routing_groups
from meshfit.funnel.sweep.tasks import CANDIDATE_PURPOSES, Task, key_of
from meshfit.job.spec import RunSpec
from meshfit.launch.hosts import LaunchHost
from meshfit.launch.supervise import LaunchOutcome, launch
from meshfit.record.schema import Parity, ParityKind, Record, RunResult
from meshfit.record.store import RecordStore


@dataclass(frozen=True, kw_only=True)
class SweepEnd:
    """How a sweep ended: every row of its plan that stands, launches that were left undone, and what
    ended it before them."""

    records: tuple[Record, ...]
    not_run: tuple[str, ...]
    stopped_by: str = "run.budget"


def left_to_run(tasks: Iterable[Task], rows: Sequence[Record]) -> list[Task]:
    """Tasks without a result. That a layout failed is one, and so for its other repeats; that the
    weights or the reference could not be made is none, nor is a row whose files are gone, nor that a
    launch was interrupted."""
    return [task for task in tasks if not _is_settled(task, rows)]


def run_sweep(
    tasks: Sequence[Task],
    *,
    run: RunSpec,
    folder: RunFolder,
    progress: Progress,
    hosts: Sequence[LaunchHost] = (),
    into: RecordStore | None = None,
) -> SweepEnd:
    """Runs every task that is left to run; resumes where an earlier process stopped.

    ``hosts`` are those that launches start their ranks on; none: this machine. Rows are added to the
    run folder's, or to those of ``into``, which count as well.

    Raises:
        RunError: the weights or the reference could not be made.
        KeyboardInterrupt: passed on after the launch in progress has been ended; it leaves no row.
    """
    store = RecordStore(folder.root)
    rows = store.records(tasks[0].request.plan_hash)
    if into is not None:
        store, rows = into, rows + into.records(tasks[0].request.plan_hash)
    left = left_to_run(tasks, rows)
    not_run = []
    with progress.watching(total=len(tasks), left=len(left), rows=rows):
        for task in left:
            if _is_settled(task, rows):  # another repeat has failed meanwhile
                progress.skip()
                continue
            if task.is_candidate and _is_spent(rows, run.budget_device_s):
                not_run.append(task.title)
                continue
            row = _run(task, rows, run=run, folder=folder, progress=progress, hosts=hosts)
            store.append(row)
            rows.append(row)
            progress.finish(task, row)
            if not task.is_candidate and row.outcome != "ok":
                raise RunError(broken_ground(task, row, folder))
    return SweepEnd(records=tuple(standing(rows)), not_run=tuple(not_run))


def standing(rows: Sequence[Record]) -> list[Record]:
    """Rows without those of interrupted launches that were run again."""
    last = {key_of(row): row for row in rows}
    return [row for row in rows if row.outcome != "interrupted" or last[key_of(row)] is row]


def device_seconds(rows: Iterable[Record]) -> float:
    """Rank-seconds that launches took: ranks times wall clock."""
    return sum(row.seconds * row.layout.world_size for row in rows)


def _is_settled(task: Task, rows: Iterable[Record]) -> bool:
    if task.is_candidate:
        return any(
            key_of(row) == task.key or row.outcome != "ok"
            for row in rows
            if row.candidate == task.request.candidate
            and row.purpose in CANDIDATE_PURPOSES
            and row.outcome != "interrupted"
        )
    made = any(key_of(row) == task.key and row.outcome == "ok" for row in rows)
    return made and task.is_on_disk


def _is_spent(rows: Iterable[Record], budget_device_s: float | None) -> bool:
    return budget_device_s is not None and device_seconds(rows) >= budget_device_s


def _run(
    task: Task,
    rows: Sequence[Record],
    *,
    run: RunSpec,
    folder: RunFolder,
    progress: Progress,
    hosts: Sequence[LaunchHost],
) -> Record:
    """Launches ``task`` and says what became of it."""
    started_at, started = datetime.now(UTC), time.monotonic()
    progress.start(task)
    ended = launch(
        task.request,
        task.folder,
        deadline_s=run.deadline_s,
        hang_s=run.hang_s,
        port=run.port,
        hosts=hosts,
        on_progress=progress.update,
    )
    took = replace(ended, seconds=time.monotonic() - started)
    return judged(task, row_of(task, took, folder=folder, started_at=started_at), rows)


def row_of(task: Task, ended: LaunchOutcome, *, folder: RunFolder, started_at: datetime) -> Record:
    """What became of a launch of ``task``, not judged yet."""
    return Record(
        plan_hash=task.request.plan_hash,
        candidate=task.request.candidate,
        repeat=task.request.repeat,
        purpose=task.request.purpose,
        layout=task.layout,
        outcome=ended.outcome,
        started_at=started_at.isoformat(timespec="seconds"),
        seconds=ended.seconds,
        result=ended.result,
        failure=ended.failure,
        prediction=task.request.prediction,
        folder=folder.relative(task.folder),
    )


def judged(task: Task, row: Record, rows: Sequence[Record]) -> Record:
    """``row`` of ``task`` with the verdict on what it computed, as far as ``rows`` hold what it is
    compared with."""
    if row.result is None or not task.is_candidate:
        return row
    parity = _judge(task, row.result, rows)
    no_number = nonfinite_loss(row.result)
    is_wrong = no_number is not None or (parity is not None and not parity.ok)
    return replace(
        row,
        outcome="parity_failed" if is_wrong else row.outcome,
        parity=parity,
        failure=row.failure or no_number,
    )


def _judge(task: Task, result: RunResult, rows: Sequence[Record]) -> Parity | None:
    """The verdict on one finished launch; None for the plain layout others are compared with."""
    reference, kind = _reference_of(task, rows)
    if reference is None:
        return None
    return judge(
        result,
        reference,
        layout=task.request.layout,
        training=task.request.training,
        kind=kind,
    )


def _reference_of(task: Task, rows: Sequence[Record]) -> tuple[RunResult | None, ParityKind]:
    if task.request.reference is not None:
        kind: ParityKind = "reduced" if task.request.purpose == "parity" else "single_process"
        return _result_of(rows, Path(task.request.reference).name), kind
    request = task.request
    groups = partial(routing_groups, request.model_config, request.training)
    measured = (row for row in rows if row.purpose == "measure" and row.result)
    plain = next((row for row in measured if groups(row.layout) == groups(task.layout)), None)
    if plain is None or plain.candidate == task.request.candidate:
        return None, "reference"
    return plain.result, "reference"


def _result_of(rows: Sequence[Record], reference: str) -> RunResult | None:
    """What the reference of that name found."""
    ours = (row.result for row in rows if (row.purpose, row.candidate) == ("reference", reference))
    return next((result for result in ours if result is not None), None)


def broken_ground(task: Task, row: Record, folder: RunFolder) -> str:
    """That a launch failed which every other one rests on."""
    why = row.failure.message if row.failure else row.outcome
    return (
        f"{task.title} failed ({row.outcome.replace('_', ' ')}): {why}. "
        f"Logs are in {folder.root / row.folder}. Nothing can be compared without it; "
        f"mend the cause and run the same command again"
    )
