"""What a person sees while a sweep runs: which launch, how far it is, how long is left. On stderr."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bar
from rich.progress import TaskID

from meshfit.funnel.sweep.bar import launch_bar, slowest_rank
from meshfit.funnel.sweep.tasks import Task
from meshfit.record.heartbeat import Heartbeat
from meshfit.record.schema import Record
from meshfit.units import format_duration


class Progress:
    """A bar on a terminal; one line a finished launch elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Bar | None = None
        self._bar_task: TaskID | None = None
        self._steps = 0
        self._title = ""
        self._done = 0
        self._total = 0
        self._seconds: list[float] = []

    @contextmanager
    def watching(self, *, total: int, left: int, rows: Sequence[Record]) -> Iterator[None]:
        """Shows a sweep of ``total`` launches until the block ends; ``rows`` are of earlier ones."""
        self._total = total
        self._done = total - left
        self._seconds = [row.seconds for row in rows]
        if left < total:
            self._console.print(f"resuming: {left} of {total} launches are left", soft_wrap=True)
        with launch_bar(self._console) as bar:
            self._bar = bar
            self._bar_task = bar.add_task("", total=self._total, completed=self._done, left="")
            try:
                yield
            finally:
                self._bar = None

    def start(self, task: Task) -> None:
        self._steps = task.request.steps
        self._title = task.title
        self._show(f"{task.title}: starting")

    def update(self, beats: Mapping[int, Heartbeat]) -> None:
        """Called with the last heartbeat of every rank, several times a second."""
        if not beats:
            return
        slowest = slowest_rank(beats)
        step = f" {slowest.step + 1}/{self._steps}" if slowest.phase == "train" else ""
        self._show(f"{self._title}: {slowest.phase}{step}")

    def finish(self, task: Task, row: Record) -> None:
        self._done += 1
        self._seconds.append(row.seconds)
        outcome = "ok" if row.outcome == "ok" else f"[red]{row.outcome.replace('_', ' ')}[/red]"
        why = escape(f": {row.failure.message}") if row.failure else ""
        self._console.print(
            f"[{self._done}/{self._total}] {task.title}  {outcome}  "
            f"{format_duration(row.seconds)}{why}",
            highlight=False,
            soft_wrap=True,
        )
        self._show("")

    def skip(self) -> None:
        """A launch that is not needed any more."""
        self._done += 1

    def say(self, text: str) -> None:
        """One line beside the launches."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _show(self, text: str) -> None:
        if self._bar is not None and self._bar_task is not None:
            self._bar.update(
                self._bar_task, description=text, completed=self._done, left=self._left()
            )

    def _left(self) -> str:
        """Time left, from the median launch so far; unknown before the first has ended."""
        if not self._seconds:
            return ""
        left = (self._total - self._done) * statistics.median(self._seconds)
        return f"about {format_duration(left)} left" if left else ""
