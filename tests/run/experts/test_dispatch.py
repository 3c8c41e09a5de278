"""Experts far away compute what a plain loop over tokens and choices computes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.run.experts.loop import (
    assert_same,
    first_ones,
    of_rank,
    routings,
    times,
    with_equal_tokens,
)
from tests.run.experts.world import run_ranks


@pytest.mark.parametrize("ranks", [2, 4])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_dropless_dispatch_computes_what_a_loop_computes(ranks: int, data: st.DataObject) -> None:
    from torch.distributed import group

    from meshfit.run.experts.dispatch import DroplessDispatch

    routing = data.draw(routings(ranks=ranks))

    def one(rank: int):
        return of_rank(rank, ranks, routing, lambda: DroplessDispatch(group.WORLD, times()))

    assert_same(run_ranks(ranks, one), routing, ranks)


@settings(max_examples=15, deadline=None)
@given(routing=routings(ranks=1))
def test_experts_that_are_all_here_compute_what_a_loop_computes(routing) -> None:
    from meshfit.run.experts.dispatch import LocalDispatch

    assert_same([of_rank(0, 1, routing, LocalDispatch)], routing, 1)


@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_limited_dispatch_drops_what_comes_last_and_counts_it(
    factor: float, data: st.DataObject
) -> None:
    from torch.distributed import group

    from meshfit.run.experts.capacity import capacity
    from meshfit.run.experts.dispatch import LimitedDispatch

    ranks = 2
    routing = with_equal_tokens(data.draw(routings(ranks=ranks)))
    experts, choices, chosen = routing
    limit = capacity(len(chosen[0]), choices, experts, factor)
    counted = {}

    def one(rank: int):
        def on_limit(dropped, padded) -> None:
            counted[rank] = (int(dropped), int(padded))

        def make():
            return LimitedDispatch(
                factor=factor, group=group.WORLD, times=times(), on_limit=on_limit
            )

        return of_rank(rank, ranks, routing, make)

    found = run_ranks(ranks, one)
    taken = [first_ones(own, limit) for own in chosen]
    assert_same(found, routing, ranks, taken)
    for rank, rows in enumerate(taken):
        kept = sum(sum(row) for row in rows)
        assert counted[rank] == (len(rows) * choices - kept, experts * limit - kept)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_one_process_drops_what_the_ranks_that_it_stands_for_drop(data: st.DataObject) -> None:
    """Two micro-batches of two sequences of four tokens, each sequence cut in two shards."""
    from meshfit.run.experts.capacity import TokenGroups, capacity
    from meshfit.run.experts.dispatch import GroupLimitedDispatch

    groups = TokenGroups(sequence_length=4, sequences=2, shards=2)
    token = st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True)
    chosen = data.draw(st.lists(token, min_size=16, max_size=16))
    limit = capacity(4, 2, 4, 1.0)
    taken: list = [None] * 16
    for first in (0, 2, 8, 10):  # of a rank: half of one sequence, half of the next
        own = [first, first + 1, first + 4, first + 5]
        for place, row in zip(own, first_ones([chosen[t] for t in own], limit), strict=True):
            taken[place] = row
    counted = []

    def make():
        return GroupLimitedDispatch(
            factor=1.0, groups=groups, on_limit=lambda *counts: counted.append(counts)
        )

    routing = (4, 2, [chosen])
    assert_same([of_rank(0, 1, routing, make)], routing, 1, [taken])
    kept = sum(sum(row) for row in taken)
    assert [int(count) for count in counted[0]] == [32 - kept, 4 * 4 * limit - kept]
