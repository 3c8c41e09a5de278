"""How long optimizer steps take on one rank."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StepClock:
    """Marks step boundaries without making the host wait for the device.

    On the CPU a step is host time. On CUDA (not run on the machine this was written on) kernels
    are queued, so boundaries are events and durations are read after the last step.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._steps: list[list[tuple[object, object]]] = []
        self._input_wait_s: list[float] = []
        self._waited_s = 0.0

    @contextmanager
    def step(self) -> Iterator[None]:
        """One optimizer step."""
        self._waited_s = 0.0
        self._steps.append([])
        self._begin = self._mark()
        yield
        self._steps[-1].append((self._begin, self._mark()))
        self._input_wait_s.append(self._waited_s)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """A part of a step that does not count: looking at the gradients of the first one."""
        self._steps[-1].append((self._begin, self._mark()))
        yield
        self._begin = self._mark()

    @contextmanager
    def input_wait(self) -> Iterator[None]:
        """A part of a step in which the host fetches its data."""
        begin = time.perf_counter()
        yield
        self._waited_s += time.perf_counter() - begin

    def step_s(self) -> tuple[float, ...]:
        """Seconds of every step so far."""
        if self._on_cuda:
            torch.cuda.synchronize()
        return tuple(sum(self._seconds(*span) for span in spans) for spans in self._steps)

    def input_wait_s(self) -> tuple[float, ...]:
        """Seconds of every step in which the host fetched data."""
        return tuple(self._input_wait_s)

    def _mark(self) -> object:
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, begin: object, end: object) -> float:
        return begin.elapsed_time(end) / 1000 if self._on_cuda else end - begin
