"""What a person sees while a training run goes on: its phase, its step, how long is left. On stderr."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TaskID

from meshfit.funnel.sweep.bar import launch_bar, slowest_rank
from meshfit.record.heartbeat import Heartbeat
from meshfit.units import format_duration

_EVERY_S = 30.0
"""Between two lines where no terminal shows a bar."""

_WITH_STEPS = ("train", "save")


class TrainProgress:
    """A bar on a terminal; elsewhere a line when ranks start to train, and then every half minute."""

    def __init__(
        self, console: Console, steps: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._steps = steps
        self._clock = clock
        self._bar: Bar | None = None
        self._bar_task = TaskID(0)
        self._first: tuple[int, float] | None = None
        """The first step of this launch that was seen, and when."""
        self._said_s = float("-inf")

    @contextmanager
    def launching(self, first_step: int) -> Iterator[None]:
        """Shows one launch, which goes on from ``first_step``, until the block ends."""
        self._first = None
        self._said_s = float("-inf")
        with launch_bar(self._console) as bar:
            self._bar = bar
            self._bar_task = bar.add_task(
                "starting", total=self._steps, completed=first_step, left=""
            )
            yield

    def update(self, beats: Mapping[int, Heartbeat]) -> None:
        """Called with the last heartbeat of every rank, several times a second."""
        if not beats or self._bar is None:
            return
        slowest = slowest_rank(beats)
        if slowest.phase not in _WITH_STEPS:
            self._bar.update(self._bar_task, description=slowest.phase)
            return
        now_s = self._clock()
        if self._first is None:
            self._first = (slowest.step, now_s)
        left = self._left(slowest.step, now_s)
        self._bar.update(
            self._bar_task, description=slowest.phase, completed=slowest.step, left=left
        )
        if self._bar.disable and now_s - self._said_s >= _EVERY_S:
            self._said_s = now_s
            text = f"{slowest.phase}: step {slowest.step + 1} of {self._steps}"
            self._console.print(f"{text}, {left}" if left else text, highlight=False)

    def _left(self, step: int, now_s: float) -> str:
        """Time left, from the steps of this launch so far; unknown before one has ended."""
        assert self._first is not None, "a step was seen"
        first_step, first_s = self._first
        if step == first_step:
            return ""
        left_s = (self._steps - step) * (now_s - first_s) / (step - first_step)
        return f"about {format_duration(left_s)} left"
