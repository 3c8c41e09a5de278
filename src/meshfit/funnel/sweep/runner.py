"""Where the launches of a sweep are done: on this machine, or (``funnel.submit``) on a cluster."""

import importlib.util
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console

from meshfit.engines.native.files import RUNNABLE_MODEL_TYPES
from meshfit.errors import InputError, NotInstalledError
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.progress import Progress
from meshfit.funnel.sweep.sweep import SweepEnd, run_sweep
from meshfit.funnel.sweep.tasks import Task
from meshfit.job.spec import Job
from meshfit.lab.hosts import launch_hosts
from meshfit.launch.orphans import end_orphans
from meshfit.launch.supervise import port_problem


class SweepRunner(Protocol):
    """Does the launches of a sweep. Its caller holds the run folder's lock."""

    def placed(self, job: Job) -> Job:
        """The job with the hosts that it will run on, as far as they are known.

        Raises:
            InputError: it is known to fail, before anything is started; with what would work.
        """

    def run(
        self, job: Job, tasks: Sequence[Task], *, folder: RunFolder, console: Console
    ) -> SweepEnd:
        """Does every task that is left to run; resumes where an earlier process stopped.

        Raises:
            RunError: what every launch rests on failed.
        """


class Here:
    """Launches one after another on this machine, or on the hosts of its lab."""

    def placed(self, job: Job) -> Job:
        """As it is: its cluster is this machine, and everything that ranks need is on it."""
        require_runnable(job)
        return job

    def run(
        self, job: Job, tasks: Sequence[Task], *, folder: RunFolder, console: Console
    ) -> SweepEnd:
        """Ends first what an earlier sweep of the folder left running."""
        for ended in end_orphans(folder.root):
            console.print(
                f"ended a process left over from an earlier run: {ended}",
                markup=False,
                soft_wrap=True,
            )
        return run_sweep(
            tasks,
            run=job.run,
            folder=folder,
            progress=Progress(console),
            hosts=launch_hosts(job.topology),
        )


def require_runnable(job: Job) -> None:
    """What can be known to fail on this machine before anything is started.

    Raises:
        InputError: with what would work.
    """
    if not job.topology.is_here:
        raise InputError(
            f"real runs need the job's cluster to be this machine, but it is "
            f"{job.topology.num_accelerators} x {job.topology.accelerator.name}: `meshfit plan` "
            f"works for any cluster; for a run set `cluster: here`, or submit it to the cluster's "
            f"scheduler (`fit --submit slurm`)"
        )
    require_runnable_model(job)
    require_packages()
    if (
        job.run.port is not None
        and job.topology.lab is None
        and (problem := port_problem(job.run.port))
    ):
        raise InputError(
            f"run.{problem}: choose another one, or leave run.port out to take a free one for each "
            f"launch"
        )


def require_packages() -> None:
    """That what ranks import is installed here.

    Raises:
        NotInstalledError: it is not.
    """
    missing = [m for m in ("torch", "transformers") if importlib.util.find_spec(m) is None]
    if missing:
        raise NotInstalledError(
            f"real runs need {' and '.join(missing)}: pip install 'meshfit[run]'"
        )


def require_runnable_model(job: Job) -> None:
    """That the runner knows the model's type.

    Raises:
        InputError: it does not.
    """
    model_type = job.model.config.get("model_type")
    if model_type not in RUNNABLE_MODEL_TYPES:
        raise InputError(
            f"{job.model.name} is of model_type {model_type!r}, which this version does not run; "
            f"it runs {', '.join(RUNNABLE_MODEL_TYPES)}, and `meshfit plan` takes any"
        )
