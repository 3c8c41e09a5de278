"""Step times of many steps and ranks as one figure with its spread."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshfit.errors import InputError

STEADY_RATIO = 1.5
"""A leading step counts as warm-up while it takes this much longer than a settled one."""


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Time of an optimizer step after warm-up, in seconds.

    Attributes:
        median_s, p10_s, p90_s: over the steps that count, each as long as its slowest rank took.
        slowest_rank: the rank whose own median is the highest.
        steps: how many steps count.
        dropped: how many first steps were left out: those asked for, and more if the run had not
            settled by then (compilation, growing caches).
    """

    median_s: float
    p10_s: float
    p90_s: float
    slowest_rank: int
    steps: int
    dropped: int

    def tokens_per_s(self, useful_tokens_per_step: int) -> float:
        """Useful tokens of the global batch (padding and masked ones not counted) a second."""
        return useful_tokens_per_step / self.median_s


def summarise(step_s: Mapping[int, Sequence[float]], warmup_steps: int) -> StepTime:
    """Rank -> seconds of every step, warm-up included, as one figure.

    A step is over when its slowest rank is; so it takes the maximum over ranks, which needs no
    barrier. The median over steps is unmoved by a single stall, which the spread shows.

    Raises:
        InputError: no step is left after ``warmup_steps``.
    """
    counted = counted_steps(step_s, warmup_steps)
    dropped = len(next(iter(step_s.values()))) - len(counted)
    return StepTime(
        median_s=statistics.median(counted),
        p10_s=percentile(counted, 0.1),
        p90_s=percentile(counted, 0.9),
        slowest_rank=max(step_s, key=lambda rank: statistics.median(step_s[rank][dropped:])),
        steps=len(counted),
        dropped=dropped,
    )


def counted_steps(step_s: Mapping[int, Sequence[float]], warmup_steps: int) -> list[float]:
    """Seconds of the steps that count, each as long as its slowest rank took.

    Left out are ``warmup_steps`` and what follows until the run has settled.

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
