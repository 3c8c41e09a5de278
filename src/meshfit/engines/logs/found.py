"""What has been found in the lines of a log so far: each step once, whoever printed it."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from meshfit.engines.logs.form import LogForm, Printed
from meshfit.engines.logs.lines import Line
from meshfit.engines.logs.starts import Starts
from meshfit.record.engine_log import LoggedMemory

_SLOWEST: Mapping[str, Callable[[list[Any]], Any]] = {
    "step_s": max,
    "clock_s": max,
    "samples_per_s": min,
    "tokens_per_s_per_rank": min,
    "mfu": min,
    "flops_per_s": min,
}
"""Of figures that several ranks print of one step, which counts; of others the first."""


def is_of_step(printed: Printed) -> bool:
    """Whether it states something of a step, numbered or not."""
    return printed.step is not None or printed.is_unnumbered


class Found:
    """Takes the lines of a log of one form.

    Attributes:
        steps: (start, step) -> what was printed of it.
        stated, version, memory, run_mean_s: as ``EngineLog`` has them.
        num_cut: statements of steps that began and were not whole.
        is_unnumbered: some statement has no number of its step.
    """

    def __init__(self, form: LogForm) -> None:
        self.form = form
        self.steps: dict[tuple[int, int], Printed] = {}
        self.stated: dict[str, int] = {}
        self.version: str | None = None
        self.memory = LoggedMemory()
        self.run_mean_s: float | None = None
        self.is_unnumbered = False
        self._streams: dict[str, Starts] = {}
        self._opened = self._closed = 0

    @property
    def num_cut(self) -> int:
        return max(0, self._opened - self._closed)

    def take(self, line: Line) -> None:
        """Adds what a line states."""
        starts = self._streams.setdefault(line.prefix, Starts())
        if self.form.start.search(line.text):
            starts.begin()
        self.stated |= self.form.stated(line.text)
        if self.form.version and (version := self.form.version.search(line.text)):
            self.version = version[1]
        self._opened += len(self.form.opening.findall(line.text))
        for printed in self.form.printed(line):
            self._take(printed, starts)

    def _take(self, printed: Printed, starts: Starts) -> None:
        self.memory = _higher(self.memory, printed)
        if printed.run_mean_step_s is not None:
            self.run_mean_s = printed.run_mean_step_s
        if not is_of_step(printed):
            return
        self._closed += 1
        self.is_unnumbered |= printed.is_unnumbered
        step = starts.next_step() if printed.step is None else printed.step
        key = (starts.place(step), step)
        self.steps[key] = _merged(self.steps.get(key), printed)


def _merged(one: Printed | None, other: Printed) -> Printed:
    """What two statements say of the same step, by two ranks or by two lines of one."""
    if one is None:
        return other
    values: dict[str, Any] = {}
    for name in (one_field.name for one_field in fields(Printed)):
        known = [v for v in (getattr(one, name), getattr(other, name)) if v is not None]
        values[name] = (
            _SLOWEST[name](known) if name in _SLOWEST and known else next(iter(known), None)
        )
    return replace(one, **values)


def _higher(memory: LoggedMemory, printed: Printed) -> LoggedMemory:
    """``memory``, or where a statement has more of a kind, that."""
    found: dict[str, Any] = {}
    for kind in ("allocated", "reserved", "resident"):
        size, highest = getattr(printed, f"{kind}_bytes"), getattr(memory, kind)
        if size is not None and (highest is None or size > highest):
            found |= {kind: size}
            if kind != "resident":
                found |= {f"{kind}_rank": printed.rank}
    return replace(memory, **found)
