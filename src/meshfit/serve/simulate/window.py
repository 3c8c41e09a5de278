"""The time in which a simulation is looked at: neither while it fills up nor while it drains."""

from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.serve.simulate.request import Request

WARM_UP_FRACTION = 0.1
"""Share of requests, the first ones, that meet an emptier deployment and are left out."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """From the first request that counts to the last arrival; to the end of the last request where
    fewer than half of them have ended by then (a closed loop, or a handful of requests).

    Attributes:
        requests: those that are measured: served, and not of the warm-up.
    """

    begins_s: float
    ends_s: float
    requests: tuple[Request, ...]

    @property
    def seconds(self) -> float:
        return self.ends_s - self.begins_s

    def holds(self, time_s: float | None) -> bool:
        return time_s is not None and self.begins_s < time_s <= self.ends_s


def window_of(requests: Sequence[Request]) -> Window | None:
    """The window over requests in order of arrival, all of them served or refused; None where none
    that counts was served."""
    counted = requests[int(WARM_UP_FRACTION * len(requests)) :]
    measured = tuple(one for one in counted if one.finished_s is not None)
    if not measured:
        return None
    last_arrival_s = max(one.arrival_s for one in measured)
    ended_s = sorted(one.finished_s for one in measured if one.finished_s is not None)
    is_steady = ended_s[len(ended_s) // 2] <= last_arrival_s
    return Window(
        begins_s=min(one.arrival_s for one in measured),
        ends_s=last_arrival_s if is_steady else ended_s[-1],
        requests=measured,
    )
