"""Which steps of a run count, and how long they took."""

import statistics
from collections.abc import Mapping, Sequence

from meshfit.errors import InputError

STEADY_RATIO = 1.5
"""A leading step counts as warm-up while it takes this much longer than a settled one."""


def counted_steps(step_s: Mapping[int, Sequence[float]], warmup_steps: int) -> list[float]:
    """Seconds of the steps that count, from rank -> seconds of every step, warm-up included.

    A step is over when its slowest rank is; so it takes the maximum over ranks, which needs no
    barrier. Left out are ``warmup_steps`` and what follows until the run has settled (compilation,
    growing caches).

    Raises:
        InputError: no step is left after ``warmup_steps``.
    """
    slowest = [max(ranks) for ranks in zip(*step_s.values(), strict=True)]
    if len(slowest) <= warmup_steps:
        raise InputError(
            f"warmup={warmup_steps} leaves none of {len(slowest)} steps to time; "
            f"run at least {warmup_steps + 1} steps"
        )
    return slowest[warmup_steps + _unsettled(slowest[warmup_steps:]) :]


def percentile(values: Sequence[float], fraction: float) -> float:
    """The value below which ``fraction`` of them lie, interpolated between neighbours."""
    ordered = sorted(values)
    below, part = divmod(fraction * (len(ordered) - 1), 1)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return low + part * (high - low)


def _unsettled(steps: Sequence[float]) -> int:
    """Leading steps that are much slower than the median of the second half."""
    settled = statistics.median(steps[len(steps) // 2 :])
    return next(
        (index for index, step in enumerate(steps) if step <= STEADY_RATIO * settled),
        len(steps) - 1,
    )
