import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.launch.hosts import LaunchHost, seats


@given(ranks=st.lists(st.integers(1, 8), min_size=1, max_size=6), data=st.data())
def test_ranks_fill_hosts_in_order_without_a_gap(ranks: list[int], data: st.DataObject) -> None:
    hosts = [LaunchHost(name=f"host{index}", ranks=count) for index, count in enumerate(ranks)]
    world_size = data.draw(st.integers(1, sum(ranks)))

    taken = seats(hosts, world_size)

    placed = [rank for seat in taken for rank in range(seat.first_rank, _end(seat))]
    assert placed == list(range(world_size))
    assert [seat.host for seat in taken] == hosts[: len(taken)]
    assert all(seat.num_ranks == seat.host.ranks for seat in taken[:-1])


def _end(seat) -> int:
    return seat.first_rank + seat.num_ranks


def test_without_hosts_all_ranks_are_on_this_machine() -> None:
    [seat] = seats((), 4)
    assert (seat.host.prefix, seat.num_ranks, seat.first_rank) == ((), 4, 0)


def test_more_ranks_than_hosts_take_is_a_slip() -> None:
    with pytest.raises(AssertionError, match="more ranks"):
        seats([LaunchHost(name="a", ranks=2)], 3)
