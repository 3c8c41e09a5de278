"""``python -m meshfit.funnel.submit.part FOLDER/jobs/N``: what a job of a submitted sweep runs.

It is the sweep that ``meshfit fit`` runs on one machine, of the launches that the part names and on the
nodes that the job was given. Its rows stay in the part's folder, for whoever submitted it to gather.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from meshfit.errors import InputError, MeshfitError
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.progress import Progress
from meshfit.funnel.sweep.sweep import run_sweep
from meshfit.funnel.sweep.sweep_plan import plan_hash, plan_in
from meshfit.funnel.sweep.tasks import Task, TaskList
from meshfit.interrupt import terminated_as_interrupted
from meshfit.job.read import NO_CALIBRATION, read_job
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.files import read_document, write_json_atomically
from meshfit.record.schema import Record, SweepPlan
from meshfit.record.store import RecordStore
from meshfit.record.submission import PartFolder, SubmittedPart, UnderWay
from meshfit.submit.nodes import nodes_of_job

INTERRUPTED = 130


class PartProgress(Progress):
    """Progress that also says in the part's folder which launch is under way."""

    def __init__(self, console: Console, part: PartFolder) -> None:
        super().__init__(console)
        self._part = part

    def start(self, task: Task) -> None:
        super().start(task)
        write_json_atomically(self._part.under_way, UnderWay(task=task.key, started_at=time.time()))

    def finish(self, task: Task, row: Record) -> None:
        super().finish(task, row)
        self._part.under_way.unlink(missing_ok=True)


def run_part(files: PartFolder, console: Console) -> None:
    """Does the launches of the part, in the sweep's order.

    Raises:
        InputError: the job was changed since it was submitted, or this process is in no job.
        RunError: what other launches rest on failed.
    """
    part = read_document(SubmittedPart, files.part)
    folder = RunFolder(Path(part.folder))
    job = read_job(Path(part.job), rank_order=part.rank_order, calibration=NO_CALIBRATION)
    plan = plan_in(folder.plan, part.plan_hash)
    if plan is None or plan_hash(job, only=_given(part, plan)) != part.plan_hash:
        raise InputError(
            f"{part.job} is not what was submitted any more, or another version of meshfit runs "
            f"here: submit it again"
        )
    with nodes_of_job(part.scheduler, job.topology, files.root) as nodes:
        if nodes is None:
            return
        job = replace(job, topology=replace(job.topology, hosts=nodes.names))
        run_sweep(
            [task for task in TaskList(job, plan, folder) if task.key in part.tasks],
            run=job.run,
            folder=folder,
            progress=PartProgress(console, files),
            hosts=nodes.hosts,
            into=RecordStore(files.root),
        )


def _given(part: SubmittedPart, plan: SweepPlan) -> list[LayoutSpec] | None:
    return [planned.layout for planned in plan.layouts] if part.given_layouts else None


def main(argv: Sequence[str]) -> int:
    """The exit code: 0 once every launch has a row, whatever became of it."""
    console = Console(file=sys.stdout, soft_wrap=True)
    try:
        with terminated_as_interrupted():
            run_part(PartFolder(Path(argv[0])), console)
    except MeshfitError as error:
        console.print(f"error: {error}", markup=False, highlight=False)
        return error.exit_code
    except KeyboardInterrupt:
        console.print("interrupted")
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
