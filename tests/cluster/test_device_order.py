from hypothesis import given
from hypothesis import strategies as st

from meshfit.cluster.device_order import device_order, nests


def test_domains_of_every_level_become_neighbours():
    links, sockets = [[0, 3], [1, 2], [4, 7], [5, 6]], [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert device_order([links, sockets], 8) == (0, 3, 1, 2, 4, 7, 5, 6)
    crossed = [[0, 1, 4, 7], [2, 3, 5, 6]]
    assert device_order([[[0, 7], [1, 4], [2, 3], [5, 6]], crossed], 8) == (0, 7, 1, 4, 2, 3, 5, 6)


def test_devices_that_are_neighbours_already_stay():
    assert device_order([[[0, 1], [2, 3]], [[0, 1, 2, 3]]], 4) == (0, 1, 2, 3)
    assert device_order([], 3) == (0, 1, 2)


@given(devices=st.permutations(range(8)))
def test_groups_of_the_order_are_those_that_were_given(devices):
    pairs = [devices[index : index + 2] for index in range(0, 8, 2)]
    halves = [[*pairs[0], *pairs[2]], [*pairs[1], *pairs[3]]]
    assert nests(pairs, halves)
    order = device_order([pairs, halves], 8)
    for size, groups in ((2, pairs), (4, halves)):
        found = {frozenset(order[first : first + size]) for first in range(0, 8, size)}
        assert found == {frozenset(group) for group in groups}


def test_a_group_that_lies_in_two_does_not_nest():
    assert not nests([[0, 1], [2, 3]], [[0, 2], [1, 3]])
