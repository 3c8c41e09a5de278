"""How long optimizer steps take on one rank.

A kernel's launch returns before the kernel has run, so on a device host time between two steps
says nothing. There, boundaries are events in the device's own stream: they time what it really
did, and unlike a synchronisation they do not make the host wait and so change what they measure.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch


class Boundaries(Protocol):
    """Marks in the order in which work is done, and the time between two of them."""

    def mark(self) -> Any:
        """A mark behind all work given out so far."""

    def settle(self) -> None:
        """Wait until every mark is reached."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Time between two marks that were reached."""


class HostBoundaries:
    """Work is done when the call returns: the host's clock tells."""

    def mark(self) -> float:
        return time.perf_counter()

    def settle(self) -> None:
        pass

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


class CudaBoundaries:
    """Work is queued: events in the current stream tell."""

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def settle(self) -> None:
        torch.cuda.synchronize()

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(begin.elapsed_time(end)) / 1000


def boundaries_of(device_type: str) -> Boundaries:
    """The marks of a type of device."""
    return CudaBoundaries() if device_type == "cuda" else HostBoundaries()


class StepClock:
    """Times every optimizer step of one rank, and how much of it went by waiting for input.

    ::

        for step in range(steps):
            with clock.step():
                with clock.input_wait():
                    batch = load(step)
                train(batch)
    """

    def __init__(self, device: torch.device, boundaries: Boundaries | None = None) -> None:
        self._boundaries = boundaries or boundaries_of(device.type)
        self._steps: list[list[tuple[Any, Any]]] = []
        self._input_wait_s: list[float] = []
        self._begin: Any = None
        self._spans: list[tuple[Any, Any]] = []
        self.input_waits: list[tuple[float, float]] = []
        """Begin and end of each wait for data in the last step, by ``time.perf_counter``."""
        self.host_steps: list[tuple[float, float]] = []
        """When the host was in each step, by ``time.perf_counter``: for a timeline, not for speed."""

    @contextmanager
    def step(self) -> Iterator[None]:
        """One optimizer step. One that raises is not counted, nor is anything outside of steps."""
        self._spans, self.input_waits = [], []
        begun_s = time.perf_counter()
        self._begin = self._boundaries.mark()
        yield
        self._spans.append((self._begin, self._boundaries.mark()))
        self._steps.append(self._spans)
        self._input_wait_s.append(sum(end - begin for begin, end in self.input_waits))
        self.host_steps.append((begun_s, time.perf_counter()))

    @contextmanager
    def pause(self) -> Iterator[None]:
        """A part of a step that does not count, such as a look at its gradients."""
        self._spans.append((self._begin, self._boundaries.mark()))
        yield
        self._begin = self._boundaries.mark()

    @contextmanager
    def input_wait(self) -> Iterator[None]:
        """A part of a step in which the host waits for its data; it counts as part of the step."""
        begin = time.perf_counter()
        yield
        self.input_waits.append((begin, time.perf_counter()))

    def step_s(self) -> tuple[float, ...]:
        """Seconds of every step so far, warm-up included. Waits for the device."""
        self._boundaries.settle()
        return tuple(
            sum(self._boundaries.seconds(begin, end) for begin, end in spans)
            for spans in self._steps
        )

    def input_wait_s(self) -> tuple[float, ...]:
        """Seconds of host time of every step so far in which it waited for data."""
        return tuple(self._input_wait_s)
