"""What the steps of an engine's log come to."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from meshfit.compare.timing import counted_steps, percentile
from meshfit.record.engine_log import EngineLog, LoggedStep


@dataclass(frozen=True, kw_only=True)
class LoggedSpeed:
    """Speed of the steps that count: those after each start's warm-up, with the batch of the last.

    Attributes:
        step_s: median of what the log has; low_s, high_s: its 10th and 90th percentile, None where one
            figure is all there is.
        statements: how many figures that is over; steps_each: the most steps that one of them is the
            mean of.
        mfu, flops_per_s: medians of what the engine printed, None where it printed none.
    """

    step_s: float
    low_s: float | None
    high_s: float | None
    statements: int
    steps_each: int
    mfu: float | None = None
    flops_per_s: float | None = None


def logged_speed(log: EngineLog, warmup_steps: int) -> LoggedSpeed | None:
    """None where no step that counts has a time.

    ``warmup_steps`` are left out after each start, and what follows until it has settled. Where single
    steps have no times at all, the mean that the engine states of all of them stands for them.
    """
    timed = [one for start in _starts(log) for one in _settled(start, warmup_steps)]
    if not timed:
        return _of_whole_run(log)
    seconds = [one.step_s for one in timed if one.step_s is not None]
    return LoggedSpeed(
        step_s=statistics.median(seconds),
        low_s=percentile(seconds, 0.1) if len(seconds) > 1 else None,
        high_s=percentile(seconds, 0.9) if len(seconds) > 1 else None,
        statements=len(seconds),
        steps_each=max(one.num_steps for one in timed),
        mfu=_median(one.mfu for one in timed),
        flops_per_s=_median(one.flops_per_s for one in timed),
    )


def _starts(log: EngineLog) -> Iterator[list[LoggedStep]]:
    for start in range(log.num_starts):
        yield [one for one in log.steps if one.start == start]


def _settled(steps: list[LoggedStep], warmup_steps: int) -> list[LoggedStep]:
    """Statements of one start whose every step is after its warm-up, from the first settled one on."""
    last_batch = steps[-1].global_batch_size
    later = [
        one
        for one in steps
        if one.step_s is not None
        and one.step - one.num_steps + 1 - steps[0].step >= warmup_steps
        and one.global_batch_size == last_batch
    ]
    if not later:
        return []
    settled = counted_steps({0: [one.step_s for one in later if one.step_s is not None]}, 0)
    return later[-len(settled) :]


def _of_whole_run(log: EngineLog) -> LoggedSpeed | None:
    if log.run_mean_step_s is None or any(one.step_s is not None for one in log.steps):
        return None
    return LoggedSpeed(
        step_s=log.run_mean_step_s, low_s=None, high_s=None, statements=1, steps_each=len(log.steps)
    )


def _median(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
