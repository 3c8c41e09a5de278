"""Schedulers that jobs can be handed to, by name."""

from collections.abc import Callable, Mapping

from meshfit.submit.batch_job import Scheduler
from meshfit.submit.kubernetes.kubectl import Kubernetes
from meshfit.submit.slurm.commands import Slurm

SCHEDULERS: Mapping[str, Callable[[Mapping[str, str]], Scheduler]] = {
    "slurm": Slurm,
    "kubernetes": Kubernetes,
}
