"""Intervals follow what a figure is made of, and what it was checked against."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.torchtitan.profile import TORCHTITAN
from meshfit.predict.costs.constants import shipped_constants
from meshfit.predict.time.spread import drawn_steps, memory_spread

BYTES = st.floats(1e6, 1e12)


def spread(allocated, reserved=None, context=0.0, profile=MEGATRON, assumptions=0):
    found = memory_spread(
        allocated=np.array([allocated]),
        reserved=np.array([allocated if reserved is None else reserved]),
        context=np.array([context]),
        profile=profile,
        constants=shipped_constants(),
        assumptions=assumptions,
    )
    return float(found[0])


def test_allocated_memory_that_met_records_is_known_best():
    checked = ("records", "peaks", "nothing")
    wide = [spread(1e10, profile=replace(MEGATRON, memory_checked=word)) for word in checked]
    assert 1 < wide[0] < wide[1] < wide[2]


def test_allocated_memory_alone_has_the_half_width_of_its_check():
    half = shipped_constants()["spread.memory.records"]
    assert np.log(spread(1e10)) == pytest.approx(half)


def test_the_spread_of_a_figure_does_not_depend_on_its_size():
    assert spread(1e9, 1.2e9, 3e8) == pytest.approx(spread(1e11, 1.2e11, 3e10))


@given(allocated=BYTES, free=BYTES)
def test_what_the_allocator_holds_beyond_widens_bytes(allocated, free):
    total = allocated + free
    reserved = total * np.log(spread(allocated, total, profile=TORCHTITAN))
    assert reserved >= allocated * np.log(spread(allocated, profile=TORCHTITAN))


@given(allocated=BYTES, more=st.integers(1, 4))
def test_what_is_not_stated_widens(allocated, more):
    assert spread(allocated, assumptions=more) > spread(allocated)


def drawn(terms, spreads, own=1.0):
    return drawn_steps(np.array(terms), np.array(spreads), own, draws=2000)


def test_a_drawn_step_of_one_term_lies_inside_its_interval_in_eight_of_ten_cases():
    steps = drawn([[1.0]], [1.5])
    assert np.mean((steps > 1 / 1.5) & (steps < 1.5)) == pytest.approx(0.8, abs=0.03)


def test_layouts_that_share_a_term_err_by_it_alike():
    steps = drawn([[1.0, 0.0], [2.0, 0.0]], [1.5, 1.5])
    assert steps[1] == pytest.approx(2 * steps[0])


def test_layouts_of_different_terms_may_change_places():
    steps = drawn([[1.0, 0.0], [0.0, 1.1]], [1.5, 1.5])
    assert 0.25 < np.mean(steps[0] > steps[1]) < 0.5


def test_equal_layouts_differ_by_what_each_has_of_its_own():
    same, apart = drawn([[1.0]] * 2, [1.5]), drawn([[1.0]] * 2, [1.5], own=1.1)
    assert same[0] == pytest.approx(same[1])
    assert np.std(np.log(apart[0] / apart[1])) > 0.05
