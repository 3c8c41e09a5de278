"""Splits of layers by what parts cost, against all splits there are."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.mesh.stage_balance import PartCosts, balanced_by_cost, sums_of_stages


def costs(seconds, kept=None, states=None):
    nothing = [0.0] * len(seconds)
    return PartCosts(
        seconds=np.array(seconds, dtype=float),
        kept_bytes=np.array(kept or nothing, dtype=float),
        state_bytes=np.array(states or nothing, dtype=float),
    )


def all_splits(layers, stages):
    for cuts in combinations(range(1, layers), stages - 1):
        yield tuple(end - start for start, end in pairwise((0, *cuts, layers)))


def test_a_head_as_long_as_two_layers_takes_two_from_the_last_stage():
    assert balanced_by_cost(costs([0, 1, 1, 1, 1, 1, 1, 2]), [1, 1]) == (4, 2)


def test_equal_layers_are_spread_evenly():
    assert balanced_by_cost(costs([0] + [1] * 8 + [0]), [4, 3, 2, 1]) == (2, 2, 2, 2)


def test_a_first_stage_that_holds_more_micro_batches_gets_fewer_layers_where_memory_is_short():
    short = costs([0] + [1] * 8 + [0], kept=[0] + [10] * 8 + [0])
    assert balanced_by_cost(short, [2, 1], most_bytes=80) == (4, 4)
    assert balanced_by_cost(short, [2, 1], most_bytes=60) == (3, 5)
    assert balanced_by_cost(short, [2, 1], most_bytes=50) is None


def test_more_stages_than_layers_have_no_split():
    assert balanced_by_cost(costs([0, 1, 1, 0]), [1, 1, 1]) is None


def test_sums_of_stages_hold_the_ends():
    assert sums_of_stages(np.array([5.0, 1, 2, 3, 7]), (1, 2)).tolist() == [6.0, 12.0]


@st.composite
def problems(draw):
    layers = draw(st.integers(1, 8))
    parts = st.lists(st.integers(0, 9), min_size=layers + 2, max_size=layers + 2)
    stages = draw(st.integers(1, layers))
    in_flight = draw(st.lists(st.integers(1, 4), min_size=stages, max_size=stages))
    return costs(draw(parts), draw(parts), draw(parts)), in_flight, draw(st.integers(1, 120))


@given(problems())
def test_no_other_split_within_the_memory_has_a_faster_slowest_stage(problem):
    parts, in_flight, most = problem
    legal = [
        split
        for split in all_splits(parts.num_layers, len(in_flight))
        if parts.held_bytes(split, in_flight).max() <= most
    ]
    found = balanced_by_cost(parts, in_flight, most_bytes=most)
    if not legal:
        assert found is None
        return
    assert found in legal
    best = min(sums_of_stages(parts.seconds, split).max() for split in legal)
    assert sums_of_stages(parts.seconds, found).max() == pytest.approx(best)
