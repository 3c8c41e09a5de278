"""How a sweep that is submitted is cut into jobs, and what each may take."""

from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.funnel.sweep.tasks import Task
from meshfit.job.spec import RunSpec
from meshfit.units import format_duration

_SHORTEST_S = 60.0
"""Schedulers count in minutes."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Launches that one job does, in order; ``title`` says whose they are."""

    title: str
    tasks: tuple[Task, ...]

    @property
    def is_ground(self) -> bool:
        """Whether jobs of candidates rest on it: it makes weights and references."""
        return not any(task.is_candidate for task in self.tasks)

    def num_nodes(self, topology: Topology) -> int:
        """That its largest launch fills."""
        ranks = max(task.request.layout.world_size for task in self.tasks)
        return -(-ranks // topology.gpus_per_host)


def cuts(left: Sequence[Task], *, each: bool) -> list[Cut]:
    """All launches as one job; or, with ``each``, one job for what all rest on, where there is
    something left of it, and then one a candidate."""
    if not each:
        return [Cut(title="all launches", tasks=tuple(left))]
    ground = tuple(task for task in left if not task.is_candidate)
    names = dict.fromkeys(task.request.candidate for task in left if task.is_candidate)
    of_candidates = [
        Cut(
            title=name,
            tasks=tuple(t for t in left if t.is_candidate and t.request.candidate == name),
        )
        for name in names
    ]
    first = [Cut(title="weights and reference", tasks=ground)] if ground else []
    return first + of_candidates


def time_limits_s(
    jobs: Sequence[Cut], topology: Topology, run: RunSpec, *, spent_device_s: float
) -> list[float]:
    """Wall clock after which each job is ended: all its deadlines, and together no more than what is
    left of the budget.

    Raises:
        InputError: the budget leaves less than a minute to a job.
    """
    wanted = [(len(job.tasks) + 1) * run.deadline_s for job in jobs]
    if run.budget_device_s is None:
        return wanted
    devices = [job.num_nodes(topology) * topology.gpus_per_host for job in jobs]
    asked = sum(limit * count for limit, count in zip(wanted, devices, strict=True))
    left = run.budget_device_s - spent_device_s
    limits = [limit * min(1.0, left / asked) for limit in wanted]
    if (shortest := min(limits)) < _SHORTEST_S:
        raise InputError(
            f"run.budget leaves {format_duration(max(0.0, shortest))} to one of {len(jobs)} jobs, and "
            f"schedulers count in minutes: raise run.budget, or run fewer layouts or repeats"
        )
    return limits
