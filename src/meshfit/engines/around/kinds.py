"""Kinds of jobs around a script, by the name that ``meshfit export --around`` takes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath

from meshfit.engines.around.leader_worker_set import leader_worker_set
from meshfit.engines.around.script import HostScript
from meshfit.engines.around.skypilot import skypilot_task
from meshfit.engines.around.slurm import sbatch
from meshfit.engines.around.train_job import exported_train_job
from meshfit.errors import InputError, nearest_name

KINDS: Mapping[str, tuple[str, Callable[[HostScript], str]]] = {
    "slurm": ("{stem}.sbatch", sbatch),
    "trainjob": ("trainjob.yaml", exported_train_job),
    "leaderworkerset": ("leaderworkerset.yaml", leader_worker_set),
    "skypilot": ("skypilot.yaml", skypilot_task),
}
"""Name -> file name and what writes it."""


def jobs_around(given: HostScript, kinds: Sequence[str] = ()) -> dict[str, str]:
    """File name -> text of the jobs asked for; where none is, of a Slurm job around several hosts.

    Raises:
        InputError: as ``job_files``.
    """
    return job_files(given, kinds or (("slurm",) if given.num_hosts > 1 else ()))


def job_files(given: HostScript, kinds: Iterable[str]) -> dict[str, str]:
    """File name -> text of a job of each kind.

    Raises:
        InputError: no such kind, or one that is not for this script.
    """
    files = {}
    for kind in kinds:
        if kind not in KINDS:
            nearest = nearest_name(kind, KINDS) or "slurm"
            raise InputError(f"--around {kind!r}: use {', '.join(KINDS)}; try {nearest}")
        name, write = KINDS[kind]
        files[name.format(stem=PurePath(given.script).stem)] = write(given)
    return files
