"""Which rank holds up the others, in scores as NVIDIA's resiliency extension defines them.

A score is between 0 and 1; 0.5 is twice as slow. In synchronous training all ranks take equally
long, the fast ones by waiting; so ranks are compared by the time they did not wait for others.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshfit.record.schema import RankReport

STRAGGLER_BELOW = 0.7
"""A score below this names a straggler (the default threshold of NVIDIA's extension)."""


@dataclass(frozen=True, kw_only=True)
class RankScore:
    """How one rank's speed compares.

    Attributes:
        own_s: of the profiled step, seconds in which it did not wait for other ranks.
        relative: the fastest rank's ``own_s`` over this one's; None where no step was profiled.
        individual: its own fastest stretch of steps over its last one; None for too few steps.
    """

    rank: int
    own_s: float | None
    relative: float | None
    individual: float | None

    @property
    def is_straggler(self) -> bool:
        """Whether it is much slower than the other ranks now, or than itself before."""
        known = [score for score in (self.relative, self.individual) if score is not None]
        return any(score < STRAGGLER_BELOW for score in known)


def rank_scores(reports: Sequence[RankReport], *, warmup_steps: int) -> list[RankScore]:
    """The scores of every rank of one launch.

    Ranks of one pipeline stage are compared with each other, as stages differ by design; where
    each stage has one rank only, all are.
    """
    own_s = {
        report.rank: report.profile.time.step - report.profile.waiting_s
        for report in reports
        if report.profile is not None
    }
    return [
        RankScore(
            rank=report.rank,
            own_s=own_s.get(report.rank),
            relative=_relative(report, reports, own_s),
            individual=_individual(report.step_s[warmup_steps:]),
        )
        for report in reports
    ]


def _relative(
    report: RankReport, reports: Sequence[RankReport], own_s: Mapping[int, float]
) -> float | None:
    if report.rank not in own_s:
        return None
    alike = [one.rank for one in reports if one.stage == report.stage and one.rank in own_s]
    compared = alike if len(alike) > 1 else list(own_s)
    return min(own_s[rank] for rank in compared) / own_s[report.rank]


def _individual(step_s: Sequence[float], windows: int = 4, at_least: int = 3) -> float | None:
    """The fastest of four stretches' median steps over the last one's."""
    size = len(step_s) // windows
    if size < at_least:
        return None
    medians = [
        statistics.median(step_s[len(step_s) - (index + 1) * size : len(step_s) - index * size])
        for index in range(windows)
    ]
    return min(medians) / medians[0]
