"""A log of any engine: which one's it is, and what it says."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from meshfit.engines.accelerate.log import LOG as TRAINER
from meshfit.engines.accelerate.log import STATE_FILE, state_lines
from meshfit.engines.deepspeed.log import LOG as DEEPSPEED
from meshfit.engines.logs.form import LogForm, Printed
from meshfit.engines.logs.lines import Line, log_lines
from meshfit.engines.logs.seconds import Interval, StepSeconds, step_seconds
from meshfit.engines.logs.starts import Starts
from meshfit.engines.megatron.log import LOG as MEGATRON
from meshfit.engines.torchtitan.log import LOG as TORCHTITAN
from meshfit.errors import InputError
from meshfit.record.engine_log import EngineLog, LoggedMemory, LoggedStep

LOGS: tuple[LogForm, ...] = (TORCHTITAN, MEGATRON, DEEPSPEED, TRAINER)

_SLOWEST: Mapping[str, Callable[[list[Any]], Any]] = {
    "step_s": max,
    "clock_s": max,
    "samples_per_s": min,
    "tokens_per_s_per_rank": min,
    "mfu": min,
    "flops_per_s": min,
}
"""Of figures that several ranks print of one step, which counts; of others the first."""


def read_log(path: Path, job: Mapping[str, int] = MappingProxyType({})) -> EngineLog:
    """What a log says.

    Args:
        job: what is known of the job, in the words of ``EngineLog.stated``; what the log states itself
            goes before it.

    Raises:
        InputError: it cannot be read, or holds no whole statement of a step of an engine that is known.
    """
    form = _recognised(path)
    found = _Found(form)
    for line in _lines(path):
        found.take(line)
    return found.log(job)


def _lines(path: Path) -> Iterable[Line]:
    return state_lines(path) or log_lines(path)


def _recognised(path: Path) -> LogForm:
    """The kind of log of which most steps are stated in a file."""
    counts = dict.fromkeys(range(len(LOGS)), 0)
    for line in _lines(path):
        for index, form in enumerate(LOGS):
            counts[index] += sum(_is_of_step(one) for one in form.printed(line))
    best = max(counts, key=lambda index: counts[index])
    if not counts[best]:
        known = "; ".join(form.words for form in LOGS)
        raise InputError(f"{path} has no whole line of a training step in it as {known} has them")
    return LOGS[best]


def _is_of_step(printed: Printed) -> bool:
    return printed.step is not None or printed.is_unnumbered


class _Found:
    """What has been found in the lines so far."""

    def __init__(self, form: LogForm) -> None:
        self._form = form
        self._streams: dict[str, Starts] = {}
        self._steps: dict[tuple[int, int], Printed] = {}
        self._stated: dict[str, int] = {}
        self._version: str | None = None
        self._memory = LoggedMemory()
        self._run_mean_s: float | None = None
        self._opened = self._closed = 0
        self._is_unnumbered = False

    def take(self, line: Line) -> None:
        starts = self._streams.setdefault(line.prefix, Starts(of_one_rank=line.prefix != ""))
        if self._form.start.search(line.text):
            starts.begin()
        self._stated |= self._form.stated(line.text)
        if self._form.version and (version := self._form.version.search(line.text)):
            self._version = version[1]
        self._opened += len(self._form.opening.findall(line.text))
        for printed in self._form.printed(line):
            self._take(printed, starts)

    def _take(self, printed: Printed, starts: Starts) -> None:
        self._memory = _higher(self._memory, printed)
        if printed.run_mean_step_s is not None:
            self._run_mean_s = printed.run_mean_step_s
        if not _is_of_step(printed):
            return
        self._closed += 1
        self._is_unnumbered |= printed.is_unnumbered
        step = starts.next_step() if printed.step is None else printed.step
        key = (starts.place(step), step)
        self._steps[key] = _merged(self._steps.get(key), printed)

    def log(self, job: Mapping[str, int]) -> EngineLog:
        """All of it. ``job`` is as in ``read_log``."""
        keys = sorted(self._steps)
        intervals = [self._interval(keys, place) for place in range(len(keys))]
        timed = self._timed(intervals, {**job, **self._stated})
        steps = tuple(map(_logged_step, keys, intervals, timed.seconds))
        return EngineLog(
            engine=self._form.engine,
            engine_version=self._version,
            form=self._form.words,
            stated=self._stated,
            num_starts=keys[-1][0] + 1,
            steps=steps,
            step_time_from=timed.words,
            run_mean_step_s=self._run_mean_s,
            memory=self._memory,
            absent=_absent(self._form, steps, self._memory, timed),
            notes=tuple(self._notes(steps)),
        )

    def _interval(self, keys: list[tuple[int, int]], place: int) -> Interval:
        (start, step), printed = keys[place], self._steps[keys[place]]
        before = keys[place - 1] if place else None
        if before is None or before[0] != start:
            began = Printed(clock_s=0.0) if self._form.clock_of_run and step == 1 else None
            return Interval(printed=printed, previous=began, num_steps=1)
        is_second = place == 1 or keys[place - 2][0] != start
        carried = 1 if self._form.carries_first and is_second else 0
        return Interval(
            printed=printed,
            previous=self._steps[before],
            num_steps=step - before[1] + carried,
        )

    def _timed(self, intervals: list[Interval], job: Mapping[str, int]) -> StepSeconds:
        if self._is_unnumbered:
            why = "it does not number its steps, so that lines may be any number of them apart"
            return StepSeconds(seconds=(None,) * len(intervals), why_none=why)
        return step_seconds(intervals, job)

    def _notes(self, steps: tuple[LoggedStep, ...]) -> Iterator[str]:
        if steps[-1].start:
            firsts = {one.start: one.step for one in reversed(steps)}
            at = ", ".join(str(firsts[start]) for start in sorted(firsts) if start)
            yield f"training was started {steps[-1].start + 1} times; again at step {at}"
        if (cut := self._opened - self._closed) > 0:
            yield f"{cut} lines of steps are cut short or written into by another rank: passed over"
        if self._is_unnumbered:
            yield f"steps are not numbered: lines are counted ({STATE_FILE} has the numbers)"


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


def _logged_step(key: tuple[int, int], interval: Interval, seconds: float | None) -> LoggedStep:
    printed = interval.printed
    return LoggedStep(
        start=key[0],
        step=key[1],
        num_steps=interval.num_steps,
        step_s=seconds,
        global_batch_size=printed.global_batch_size,
        loss=printed.loss,
        gradient_norm=printed.gradient_norm,
        mfu=printed.mfu,
        flops_per_s=printed.flops_per_s,
    )


def _absent(
    form: LogForm, steps: tuple[LoggedStep, ...], memory: LoggedMemory, timed: StepSeconds
) -> dict[str, str]:
    """Figure -> why it is not there."""
    has = {name: any(getattr(one, name) is not None for one in steps) for name in _OF_STEPS}
    has["memory"] = any(
        getattr(memory, kind) is not None for kind in ("allocated", "reserved", "resident")
    )
    reasons = {
        name: form.absent.get(name, _NOT_PRINTED) for name, is_there in has.items() if not is_there
    }
    if timed.why_none:
        reasons["step_time"] = timed.why_none
    return reasons


_OF_STEPS = ("loss", "gradient_norm", "mfu", "flops_per_s")
_NOT_PRINTED = "no line of this log has it"
