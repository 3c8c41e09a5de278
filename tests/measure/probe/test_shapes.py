from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.measure.probe.shapes import groups, pairs, shapes

LEVELS = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3)


@given(sizes=LEVELS)
def test_groups_of_every_shape_hold_every_rank_once(sizes):
    for members in shapes(sizes):
        found = groups(sizes, members)
        assert sorted(rank for group in found for rank in group) == list(range(prod(sizes)))
        assert {len(group) for group in found} == {prod(members)}


def test_shapes_of_a_node_and_a_network():
    assert shapes([4, 2]) == [(2, 1), (1, 2), (4, 1), (2, 2), (4, 2)]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ((2, 1), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ((1, 2), [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ((2, 2), [[0, 1, 4, 5], [2, 3, 6, 7]]),
    ],
)
def test_neighbours_are_together_and_other_levels_same_placed(members, expected):
    assert groups([4, 2], members) == expected


@given(sizes=LEVELS)
def test_links_join_different_ranks_of_the_world_once_each_way(sizes):
    found = [(a, b) for a, b, _ in pairs(sizes)]
    assert len(found) == len(set(found))
    assert all(a != b and {a, b} <= set(range(prod(sizes))) for a, b in found)


def test_links_between_hosts_join_same_placed_ranks_of_every_pair_both_ways():
    between = [pair[:2] for pair in pairs([2, 3]) if pair[2] == 1]
    assert between == [
        (0, 2), (1, 3), (2, 0), (3, 1), (0, 4), (1, 5), (4, 0), (5, 1), (2, 4), (3, 5), (4, 2), (5, 3),
    ]  # fmt: skip


def test_of_many_hosts_neighbours_are_measured():
    assert {abs(a - b) for a, b, _ in pairs([1, 9])} == {1}
    assert {abs(a - b) for a, b, _ in pairs([1, 8])} == set(range(1, 8))
