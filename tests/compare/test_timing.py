import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.compare.timing import counted_steps, percentile
from meshfit.errors import InputError


def test_f09_a_slow_first_step_does_not_move_the_figure():
    """35,479 ms against 550: the mean of ten steps would be 4,043 ms."""
    steps = [35.479] + [0.550] * 9
    assert statistics.mean(steps) == pytest.approx(4.043, abs=1e-3)
    assert counted_steps({0: steps}, warmup_steps=0) == [0.550] * 9


def test_f09_steps_that_compile_are_dropped_until_the_run_has_settled():
    """A mean over 200 steps would be dragged by the first 100, which compile."""
    compiling = [2.0 + 0.01 * (step % 7) for step in range(100)]
    settled = [0.5 + 0.01 * (step % 3) for step in range(100)]
    assert counted_steps({0: compiling + settled}, warmup_steps=5) == settled


def test_a_steady_run_loses_only_the_warmup_it_was_asked_to():
    assert counted_steps({0: [1.0, 1.1, 0.9, 1.0, 1.2]}, warmup_steps=2) == [0.9, 1.0, 1.2]


def test_a_stall_in_the_middle_counts():
    steps = [1.0, 1.0, 9.0, 1.0, 1.0, 1.0]
    assert counted_steps({0: steps}, warmup_steps=1) == steps[1:]


def test_f11_a_step_takes_as_long_as_its_slowest_rank():
    by_rank = {0: [1.0, 2.0, 1.0, 1.0, 2.0], 1: [2.0, 1.0, 1.9, 2.1, 2.0], 2: [0.1] * 5}
    assert counted_steps(by_rank, warmup_steps=0) == [2.0, 2.0, 1.9, 2.1, 2.0]


def test_no_step_left_after_warmup_says_how_many_would_do():
    with pytest.raises(
        InputError, match=r"^warmup=5 leaves none of 5 steps to time; run at least 6 steps$"
    ):
        counted_steps({0: [1.0] * 5}, warmup_steps=5)


def test_ranks_that_report_different_numbers_of_steps_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        counted_steps({0: [1.0, 1.0], 1: [1.0]}, warmup_steps=0)


SECONDS = st.floats(1e-3, 1e3)


@given(
    steps=st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=30),
    warmup=st.integers(0, 29),
)
def test_what_counts_is_the_end_of_the_run_and_never_empty(steps, warmup):
    if warmup >= len(steps):
        return
    found = counted_steps({0: [a for a, _ in steps], 1: [b for _, b in steps]}, warmup)
    assert 1 <= len(found) <= len(steps) - warmup
    assert found == [max(pair) for pair in steps[-len(found) :]]


@given(st.lists(SECONDS, min_size=2, max_size=50))
def test_percentiles_are_those_of_the_inclusive_method(values):
    expected = statistics.quantiles(values, n=10, method="inclusive")
    assert percentile(values, 0.1) == pytest.approx(expected[0])
    assert percentile(values, 0.9) == pytest.approx(expected[-1])
