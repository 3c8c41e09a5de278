"""A sweep whose launches are done by jobs of a cluster's scheduler.

Whoever submitted them watches the jobs and gathers their rows into the run folder, which all of them
share; when this process ends before them, they go on, and the same command gathers what they did.
"""

import time
from collections.abc import Sequence

from rich.console import Console

from meshfit.errors import InputError, RunError
from meshfit.funnel.submit.gathering import Gathering, OpenPart
from meshfit.funnel.submit.submitting import SubmitOptions, Submitter
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.progress import Progress
from meshfit.funnel.sweep.runner import require_runnable_model
from meshfit.funnel.sweep.sweep import SweepEnd, device_seconds
from meshfit.funnel.sweep.tasks import Task
from meshfit.job.spec import Job
from meshfit.submit.batch_job import JobState, Scheduler

_POLL_S = 5.0

_UNKNOWN = JobState(phase="ended", word="unknown to the scheduler", ended_well=True)
"""Never submitted, or forgotten since: what it has no row of is left to run."""


class Submitted:
    """Launches done by jobs of ``scheduler``."""

    def __init__(self, scheduler: Scheduler, options: SubmitOptions) -> None:
        self._scheduler = scheduler
        self._options = options

    def placed(self, job: Job) -> Job:
        """As it is: which nodes a job gets, it learns when it runs. The cluster is described, and no
        larger than what jobs may hold."""
        require_runnable_model(job)
        if job.topology.is_here or job.topology.lab is not None:
            raise InputError(
                f"{self._scheduler.name} gives nodes of a cluster, but the job's cluster is this "
                f"machine: write which nodes to ask for, as in `cluster: 2x8 H100-SXM`"
            )
        most = self._options.max_nodes
        if most is not None and job.topology.num_hosts > most:
            raise InputError(
                f"--max-nodes {most}, but every layout of this job fills "
                f"{job.topology.num_hosts} nodes: allow as many, or make the cluster smaller"
            )
        return job

    def run(
        self, job: Job, tasks: Sequence[Task], *, folder: RunFolder, console: Console
    ) -> SweepEnd:
        """Goes on with the jobs that are there, or submits what is left; ends when all have ended.

        Raises:
            InputError: the budget leaves no job the time for a launch.
            RunError: the scheduler refuses a job or does not answer, or what every launch rests on
                failed.
            KeyboardInterrupt: passed on; the jobs go on.
        """
        progress = Progress(console)
        gathering = Gathering(tasks, folder, progress)
        submitter = Submitter(job, folder, self._scheduler, self._options)
        parts = _known(submitter.open_parts(), gathering)
        left = gathering.left
        with progress.watching(total=len(tasks), left=len(left), rows=gathering.rows):
            if left and not parts:
                parts = submitter.submit(left, spent_device_s=device_seconds(gathering.rows))
            try:
                self._watch(parts, gathering, progress)
            except KeyboardInterrupt:
                progress.say(self._how_to_go_on(parts))
                raise
        return gathering.end

    def _watch(self, parts: Sequence[OpenPart], gathering: Gathering, progress: Progress) -> None:
        """Gathers rows as they come, until every job has ended."""
        left, said, late = list(parts), dict[str, JobState](), set[str]()
        while left:
            states = self._scheduler.states([part.id for part in left])
            for part in list(left):
                gathering.collect(part)
                state = states.get(part.id) or gathering.state_by_rows(part)
                if state is None:
                    continue
                if said.get(part.id) != state:
                    said[part.id] = state
                    progress.say(f"{part.called}: {state}")
                # What another node wrote last may be late to show here: one more look.
                if state.phase == "ended" and (gathering.is_done(part) or part.id in late):
                    gathering.close(part, state)
                    left.remove(part)
                elif state.phase == "ended":
                    late.add(part.id)
                self._require_ground(gathering, left)
            if left:
                time.sleep(_POLL_S)

    def _require_ground(self, gathering: Gathering, left: Sequence[OpenPart]) -> None:
        """Ends the jobs that rest on what has failed, and raises that it has."""
        try:
            gathering.require_ground()
        except RunError:
            if left:
                self._scheduler.cancel([part.id for part in left])
            for part in left:
                gathering.drop(part)
            raise

    def _how_to_go_on(self, parts: Sequence[OpenPart]) -> str:
        ids = [part.id for part in parts if not part.files.end.exists()]
        jobs, go, them = ("job", "goes", "it") if len(ids) == 1 else ("jobs", "go", "them")
        return (
            f"{self._scheduler.name} {jobs} {', '.join(ids)} {go} on without this command: the same "
            f"command gathers what was done, and `{self._scheduler.cancel_line(ids)}` ends {them}"
        )


def _known(parts: Sequence[OpenPart], gathering: Gathering) -> list[OpenPart]:
    """Those that the scheduler has or had; what others may have done is gathered."""
    for part in parts:
        if not part.id:
            gathering.close(part, _UNKNOWN)
    return [part for part in parts if part.id]
