"""Handing the launches of a sweep to a scheduler, as jobs."""

import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshfit.errors import InputError
from meshfit.funnel.submit.cuts import Cut, cuts, time_limits_s
from meshfit.funnel.submit.gathering import OpenPart
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.tasks import Task
from meshfit.job.spec import Job
from meshfit.record.files import read_document, write_json_atomically
from meshfit.record.submission import (
    PartFolder,
    Submission,
    SubmittedPart,
    next_part_folder,
    open_part_folders,
)
from meshfit.submit.batch_job import BatchJob, Scheduler


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """What is submitted, and what it may take.

    Attributes:
        job_file: that the jobs read again; ``rank_order`` goes before its own.
        given_layouts: the sweep is of layouts that were given, not of a shortlist.
        each: one job a candidate; else one job for all, on the same nodes.
        max_nodes: that jobs may hold at a time; None: as many as they ask for.
    """

    job_file: Path
    rank_order: str | None = None
    given_layouts: bool = False
    each: bool = False
    max_nodes: int | None = None


def jobs_have_not_ended(files: PartFolder, part: SubmittedPart) -> InputError:
    """What is said where someone else than the scheduler of ``part`` is to go on with its sweep."""
    return InputError(
        f"{files.root} is a job of {part.scheduler} that has not ended: go on with it by --submit "
        f"{part.scheduler.lower()}, or choose another --out"
    )


class Submitter:
    """Jobs of one sweep."""

    def __init__(
        self, job: Job, folder: RunFolder, scheduler: Scheduler, options: SubmitOptions
    ) -> None:
        self._job = job
        self._folder = folder
        self._scheduler = scheduler
        self._options = options

    def open_parts(self) -> list[OpenPart]:
        """Jobs of earlier calls whose end is not gathered yet; of those that the scheduler never had, or
        has forgotten without their id having been noted, ``id`` is empty.

        Raises:
            InputError: they are another scheduler's.
            RunError: the scheduler does not say whether it has one whose id was not noted.
        """
        found = []
        for files in open_part_folders(self._folder.root):
            part = read_document(SubmittedPart, files.part)
            if part.scheduler != self._scheduler.name:
                raise jobs_have_not_ended(files, part)
            found.append(self._opened(files, part, self._id_of(files, part) or ""))
        return found

    def submit(self, left: Sequence[Task], *, spent_device_s: float) -> list[OpenPart]:
        """One job for all that is left; or one for what all rest on, and after it one a candidate.

        Raises:
            InputError: the budget leaves no job the time for a launch, or an option is none.
            RunError: the scheduler refuses a job; those before it are submitted.
        """
        jobs = cuts(left, each=self._options.each)
        limits = time_limits_s(
            jobs, self._job.topology, self._job.run, spent_device_s=spent_device_s
        )
        parts: list[OpenPart] = []
        after: tuple[str, ...] = ()
        for number, (cut, limit_s) in enumerate(zip(jobs, limits, strict=True)):
            lane = self._lane(number)
            parts.append(self._submit(cut, time_limit_s=limit_s, after=after, lane=lane))
            if cut.is_ground:
                after = (parts[-1].id,)
        return parts

    def _submit(
        self, cut: Cut, *, time_limit_s: float, after: tuple[str, ...], lane: str | None
    ) -> OpenPart:
        files = next_part_folder(self._folder.root)
        part = self._part(cut)
        nodes = cut.num_nodes(self._job.topology)
        batch = BatchJob(
            name=f"meshfit {self._job.name} {cut.title}",
            mark=part.mark,
            command=(sys.executable, "-m", "meshfit.funnel.submit.part", str(files.root)),
            folder=Path.cwd(),
            log=files.log,
            num_nodes=nodes,
            devices_per_node=self._job.topology.gpus_per_host,
            accelerator=self._job.topology.accelerator,
            hosts=self._job.topology.hosts[:nodes],
            time_limit_s=time_limit_s,
            after=after,
            lane=lane,
        )
        name, text = self._scheduler.script(batch)
        write_json_atomically(files.part, part)
        script = files.root / name
        script.write_text(text, encoding="utf-8")
        job_id = self._scheduler.submit(script)
        write_json_atomically(files.submission, Submission(id=job_id))
        return self._opened(files, part, job_id)

    def _part(self, cut: Cut) -> SubmittedPart:
        return SubmittedPart(
            mark=uuid.uuid4().hex,
            scheduler=self._scheduler.name,
            plan_hash=cut.tasks[0].request.plan_hash,
            job=str(self._options.job_file),
            rank_order=self._options.rank_order,
            given_layouts=self._options.given_layouts,
            folder=str(self._folder.root),
            tasks=tuple(task.key for task in cut.tasks),
        )

    def _lane(self, number: int) -> str | None:
        """One of so many that jobs of all lanes together hold no more nodes than they may."""
        if self._options.max_nodes is None or not self._options.each:
            return None
        lanes = self._options.max_nodes // self._job.topology.num_hosts
        return f"meshfit-{self._job.identity[:8]}-{number % lanes}"

    def _id_of(self, files: PartFolder, part: SubmittedPart) -> str | None:
        """Where the process that submitted it was killed before it had noted the id, the scheduler
        is asked."""
        if files.submission.exists():
            return read_document(Submission, files.submission).id
        return self._scheduler.find(part.mark)

    def _opened(self, files: PartFolder, part: SubmittedPart, job_id: str) -> OpenPart:
        called = f"{self._scheduler.name} job {job_id}"
        return OpenPart(files=files, part=part, id=job_id, called=called)
