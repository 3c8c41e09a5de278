"""Intervals follow what a figure is made of, and what it was checked against."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.torchtitan.profile import TORCHTITAN
from meshfit.predict.costs.constants import shipped_constants
from meshfit.predict.time.spread import memory_spread

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
