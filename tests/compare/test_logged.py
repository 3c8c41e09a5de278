"""What the steps of a log come to: which count, and what there is where single steps have no times."""

import pytest

from meshfit.compare.logged import logged_speed
from meshfit.record.engine_log import EngineLog, LoggedMemory, LoggedStep


def log_of(*starts, run_mean_step_s=None, **more):
    """A log of these seconds of steps, a list for each start; steps of every start are from 1 on."""
    steps = [
        LoggedStep(start=start, step=number, num_steps=1, step_s=seconds, **more)
        for start, times in enumerate(starts)
        for number, seconds in enumerate(times, start=1)
    ]
    return EngineLog(
        engine="torchtitan",
        form="a log",
        num_starts=len(starts),
        steps=tuple(steps),
        run_mean_step_s=run_mean_step_s,
        memory=LoggedMemory(),
    )


def test_a_step_is_the_median_of_those_after_the_warm_up():
    speed = logged_speed(log_of([9.0, 9.0, 1.0, 2.0, 3.0]), 2)
    assert (speed.step_s, speed.statements) == (2.0, 3)
    assert 1.0 < speed.low_s < speed.step_s < speed.high_s < 3.0


def test_every_start_has_its_own_warm_up():
    speed = logged_speed(log_of([9.0, 1.0, 1.0], [9.0, 1.0]), 1)
    assert (speed.step_s, speed.high_s, speed.statements) == (1.0, 1.0, 3)


def test_what_has_not_settled_after_the_warm_up_is_left_out():
    assert logged_speed(log_of([9.0, 9.0, 1.0, 1.0, 1.0, 1.0]), 1).high_s == 1.0


def test_a_mean_that_reaches_into_the_warm_up_does_not_count():
    steps = [
        LoggedStep(start=0, step=1, num_steps=1, step_s=9.0),
        LoggedStep(start=0, step=10, num_steps=9, step_s=2.0),
        LoggedStep(start=0, step=20, num_steps=10, step_s=1.0),
    ]
    log = EngineLog(
        engine="megatron", form="a log", num_starts=1, steps=tuple(steps), memory=LoggedMemory()
    )
    speed = logged_speed(log, 5)
    assert (speed.step_s, speed.statements, speed.steps_each) == (1.0, 1, 10)
    assert speed.low_s is None


def test_steps_of_a_smaller_batch_do_not_count():
    steps = [
        LoggedStep(
            start=0, step=n, num_steps=1, step_s=float(n), global_batch_size=8 * (1 + n // 3)
        )
        for n in range(1, 6)
    ]
    log = EngineLog(
        engine="megatron", form="a log", num_starts=1, steps=tuple(steps), memory=LoggedMemory()
    )
    assert logged_speed(log, 0).step_s == 4.0


def test_the_mean_of_the_whole_run_stands_for_steps_without_times():
    speed = logged_speed(log_of([None, None, None], run_mean_step_s=0.5), 2)
    assert (speed.step_s, speed.low_s, speed.steps_each) == (0.5, None, 3)


@pytest.mark.parametrize(("times", "warmup"), [([1.0, 1.0], 5), ([None, None], 0)])
def test_nothing_is_said_where_no_step_counts(times, warmup):
    assert logged_speed(log_of(times), warmup) is None


def test_what_the_engine_printed_of_its_peak_is_a_median_of_the_same_steps():
    speed = logged_speed(log_of([1.0, 1.0, 1.0], mfu=0.4, flops_per_s=1e12), 1)
    assert (speed.mfu, speed.flops_per_s) == (0.4, 1e12)
