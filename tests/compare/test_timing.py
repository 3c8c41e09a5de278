import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.compare.timing import StepTime, percentile, summarise
from meshfit.errors import InputError


def test_f09_a_slow_first_step_does_not_move_the_figure_and_is_reported_as_dropped():
    """35,479 ms against 550: the mean of ten steps would be 4,043 ms."""
    steps = [35.479] + [0.550] * 9
    assert statistics.mean(steps) == pytest.approx(4.043, abs=1e-3)
    found = summarise({0: steps}, warmup_steps=0)
    assert (found.median_s, found.p90_s, found.dropped) == (0.550, 0.550, 1)


def test_f09_steps_that_compile_are_dropped_until_the_run_has_settled():
    """A mean over 200 steps would be dragged by the first 100, which compile."""
    steps = [2.0 + 0.01 * (step % 7) for step in range(100)]
    steps += [0.5 + 0.01 * (step % 3) for step in range(100)]
    found = summarise({0: steps}, warmup_steps=5)
    assert (found.dropped, found.steps) == (100, 100)
    assert found.median_s == pytest.approx(0.51)


def test_a_steady_run_loses_only_the_warmup_it_was_asked_to():
    found = summarise({0: [1.0, 1.1, 0.9, 1.0, 1.2]}, warmup_steps=2)
    assert (found.dropped, found.steps) == (2, 3)


def test_a_stall_in_the_middle_stays_in_the_spread():
    found = summarise({0: [1.0, 1.0, 9.0, 1.0, 1.0, 1.0]}, warmup_steps=1)
    assert (found.dropped, found.median_s) == (1, 1.0)
    assert found.p90_s > 5


def test_f11_a_step_takes_as_long_as_its_slowest_rank():
    by_rank = {0: [1.0, 2.0, 1.0, 1.0, 2.0], 1: [2.0, 1.0, 1.9, 2.1, 2.0], 2: [0.1] * 5}
    found = summarise(by_rank, warmup_steps=0)
    assert found.median_s == 2.0
    assert found.p10_s == pytest.approx(1.94)
    assert found.slowest_rank == 1


def test_useful_tokens_per_second_come_from_the_median_step():
    found = summarise({0: [0.5, 0.5, 0.6]}, warmup_steps=0)
    assert found.tokens_per_s(1000) == 2000


def test_no_step_left_after_warmup_says_how_many_would_do():
    with pytest.raises(
        InputError, match=r"^warmup=5 leaves none of 5 steps to time; run at least 6 steps$"
    ):
        summarise({0: [1.0] * 5}, warmup_steps=5)


def test_ranks_that_report_different_numbers_of_steps_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        summarise({0: [1.0, 1.0], 1: [1.0]}, warmup_steps=0)


SECONDS = st.floats(1e-3, 1e3)


@given(
    steps=st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=30),
    warmup=st.integers(0, 29),
)
def test_figures_are_ordered_and_every_step_is_either_counted_or_dropped(steps, warmup):
    if warmup >= len(steps):
        return
    found = summarise({0: [a for a, _ in steps], 1: [b for _, b in steps]}, warmup_steps=warmup)
    assert isinstance(found, StepTime)
    assert found.steps >= 1
    assert found.steps + found.dropped == len(steps)
    assert found.dropped >= warmup
    assert min(max(s) for s in steps) <= found.p10_s <= found.median_s <= found.p90_s
    assert found.p90_s <= max(max(s) for s in steps)


@given(st.lists(SECONDS, min_size=2, max_size=50))
def test_percentiles_are_those_of_the_inclusive_method(values):
    expected = statistics.quantiles(values, n=10, method="inclusive")
    assert percentile(values, 0.1) == pytest.approx(expected[0])
    assert percentile(values, 0.9) == pytest.approx(expected[-1])
