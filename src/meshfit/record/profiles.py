"""The mean of several profiles: over the steps of a rank, or over ranks and repeats."""

from collections.abc import Sequence
from statistics import fmean

from meshfit.breakdown import TIME_TERMS, TimeBreakdown
from meshfit.record.schema import StepProfile


def mean_profile(profiles: Sequence[StepProfile]) -> StepProfile:
    """The mean, term by term; ``profiles`` must not be empty.

    A term that some of them lack is the mean of the others; an exposed communication that one of them
    lacks took no time there.
    """
    times = [profile.time for profile in profiles]
    names = {name for time in times for name in time.exposed}
    return StepProfile(
        time=TimeBreakdown(
            **{name: _mean([getattr(time, name) for time in times]) for name in TIME_TERMS},
            exposed={
                name: fmean(t.exposed.get(name, 0.0) for t in times) for name in sorted(names)
            },
        ),
        waiting_s=fmean(profile.waiting_s for profile in profiles),
        communication_s=fmean(profile.communication_s for profile in profiles),
        host_s=_mean([profile.host_s for profile in profiles]),
        core_wait_s=_mean([profile.core_wait_s for profile in profiles]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
