"""From what was found in a log to the record of it: seconds of steps, what is absent, what to know."""

from collections.abc import Iterator, Mapping

from meshfit.engines.accelerate.log import STATE_FILE
from meshfit.engines.logs.form import LogForm, Printed
from meshfit.engines.logs.found import Found
from meshfit.engines.logs.seconds import StatedStep, StepSeconds, step_seconds
from meshfit.record.engine_log import EngineLog, LoggedMemory, LoggedStep

UNNUMBERED = "it does not number its steps, so that lines may be any number of them apart"

_OF_STEPS = ("loss", "gradient_norm", "mfu", "flops_per_s")
_OF_MEMORY = ("allocated", "reserved", "resident")
_NOT_PRINTED = "no line of this log has it"


def assembled(found: Found, job: Mapping[str, int]) -> EngineLog:
    """The record of a log in which steps were found. ``job`` is as ``read_log`` takes it."""
    keys = sorted(found.steps)
    stated = [_stated(found, keys, place) for place in range(len(keys))]
    timed = _timed(found, stated, {**job, **found.stated})
    steps = tuple(map(_logged_step, keys, stated, timed.seconds))
    return EngineLog(
        engine=found.form.engine,
        engine_version=found.version,
        form=found.form.words,
        stated=found.stated,
        num_starts=keys[-1][0] + 1,
        steps=steps,
        step_time_from=timed.words,
        run_mean_step_s=found.run_mean_s,
        memory=found.memory,
        absent=_absent(found.form, steps, found.memory, timed),
        notes=tuple(_notes(found, steps)),
    )


def _stated(found: Found, keys: list[tuple[int, int]], place: int) -> StatedStep:
    """A statement with the one before it of the same start."""
    (start, step), printed = keys[place], found.steps[keys[place]]
    earlier = [key for key in keys[max(0, place - 2) : place] if key[0] == start]
    if not earlier:
        began = Printed(clock_s=0.0) if found.form.clock_of_run and step == 1 else None
        return StatedStep(printed=printed, previous=began, num_steps=1)
    carried = 1 if found.form.carries_first and len(earlier) == 1 else 0
    return StatedStep(
        printed=printed,
        previous=found.steps[earlier[-1]],
        num_steps=step - earlier[-1][1] + carried,
    )


def _timed(found: Found, stated: list[StatedStep], job: Mapping[str, int]) -> StepSeconds:
    if found.is_unnumbered:
        return StepSeconds(seconds=(None,) * len(stated), why_none=UNNUMBERED)
    return step_seconds(stated, job)


def _logged_step(key: tuple[int, int], stated: StatedStep, seconds: float | None) -> LoggedStep:
    printed = stated.printed
    return LoggedStep(
        start=key[0],
        step=key[1],
        num_steps=stated.num_steps,
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
    has["memory"] = any(getattr(memory, kind) is not None for kind in _OF_MEMORY)
    reasons = {
        name: form.absent.get(name, _NOT_PRINTED) for name, is_there in has.items() if not is_there
    }
    return reasons | ({"step_time": timed.why_none} if timed.why_none else {})


def _notes(found: Found, steps: tuple[LoggedStep, ...]) -> Iterator[str]:
    if steps[-1].start:
        firsts = {one.start: one.step for one in reversed(steps)}
        at = ", ".join(str(firsts[start]) for start in sorted(firsts) if start)
        yield f"training was started {steps[-1].start + 1} times; again at step {at}"
    if found.num_cut:
        yield (
            f"{found.num_cut} lines of steps are cut short or written into by another rank: passed over"
        )
    if found.is_unnumbered:
        yield f"steps are not numbered: lines are counted ({STATE_FILE} has the numbers)"
