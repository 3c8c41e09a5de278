"""Time that goes by between pairs of marks, summed up for each step, read when asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from meshfit.measure.timing import Boundaries


class Spans:
    """Sums up, step by step, the seconds spent inside ``measure``.

    A step is summed up when the next one ends: by then a device has long reached its marks, so that
    marks of two steps at most are kept and nobody waits.
    """

    def __init__(self, boundaries: Boundaries) -> None:
        self._boundaries = boundaries
        self._now: list[tuple[Any, Any]] = []
        self._last: list[tuple[Any, Any]] | None = None
        self._sums_s: list[float] = []

    @contextmanager
    def measure(self) -> Iterator[None]:
        """A stretch of work that counts."""
        begin = self._boundaries.mark()
        yield
        self._now.append((begin, self._boundaries.mark()))

    def end_step(self) -> None:
        """What was measured since the last call is one step."""
        if self._last is not None:
            self._sums_s.append(self._sum(self._last))
        self._now, self._last = [], self._now

    def seconds(self) -> tuple[float, ...]:
        """Of every step so far. Waits for the device."""
        if self._last is None:
            return ()
        self._boundaries.settle()
        return (*self._sums_s, self._sum(self._last))

    def _sum(self, spans: list[tuple[Any, Any]]) -> float:
        return sum(self._boundaries.seconds(begin, end) for begin, end in spans)


@dataclass(frozen=True, kw_only=True)
class ExchangeTimes:
    """All-to-all around experts, waiting for other ranks included.

    ``dispatch`` takes rows to their experts (in the backward, gradients of what experts gave back),
    ``combine`` the other way.
    """

    dispatch: Spans
    combine: Spans

    def end_step(self) -> None:
        self.dispatch.end_step()
        self.combine.end_step()
