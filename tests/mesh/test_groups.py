import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.mesh.groups import GROUP_AXES, coordinates, describe_groups, groups, spanned_levels
from meshfit.mesh.spec import AXES, LayoutSpec


@st.composite
def foldable_layouts(draw):
    """Layouts whose ep x etp divides dp_shard x cp x tp."""
    degree = st.sampled_from([1, 2, 3, 4])
    layout = {axis: draw(degree) for axis in AXES}
    block = layout["dp_shard"] * layout["cp"] * layout["tp"]
    ep = draw(st.sampled_from([d for d in range(1, block + 1) if block % d == 0]))
    rest = block // ep
    etp = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
    return LayoutSpec(**layout, ep=ep, etp=etp)


orders = st.permutations(AXES)


@given(foldable_layouts(), st.sampled_from(GROUP_AXES), orders)
def test_groups_of_an_axis_partition_the_ranks(layout, axis, order):
    members = groups(layout, axis, order)
    assert sorted(members.ravel().tolist()) == list(range(layout.world_size))


@given(foldable_layouts(), st.sampled_from(AXES), orders)
def test_ranks_of_a_group_differ_in_its_axis_only(layout, axis, order):
    for members in groups(layout, axis, order).tolist():
        places = [coordinates(layout, rank, order) for rank in members]
        assert [place.pop(axis) for place in places] == list(range(getattr(layout, axis)))
        assert all(place == places[0] for place in places)


@given(foldable_layouts(), orders)
def test_expert_groups_stay_inside_dp_shard_cp_and_tp(layout, order):
    assert groups(layout, "ep", order).shape[1] == layout.ep
    for axis in ("ep", "etp", "edp"):
        for members in groups(layout, axis, order).tolist():
            places = [coordinates(layout, rank, order) for rank in members]
            assert len({(place["pp"], place["dp_replicate"]) for place in places}) == 1


def test_order_is_that_of_megatron_and_torchtitan():
    """Megatron-Core 0.19.2 ``RankGenerator(tp=2, dp=2, pp=2)``, order tp-cp-ep-dp-pp."""
    layout = LayoutSpec(tp=2, dp_shard=2, pp=2, zero_stage=3)
    assert groups(layout, "tp").tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups(layout, "dp").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups(layout, "pp").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_hybrid_sharding_puts_shards_next_to_each_other():
    layout = LayoutSpec(dp_replicate=2, dp_shard=4, zero_stage=3)
    assert groups(layout, "dp_shard").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups(layout, "dp_replicate").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert groups(layout, "dp").tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_expert_parallel_takes_adjacent_ranks():
    layout = LayoutSpec(dp_shard=4, tp=2, ep=4, zero_stage=3)
    assert groups(layout, "ep").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups(layout, "edp").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize("rank", range(8))
def test_coordinates_and_rank_order_agree(rank):
    layout = LayoutSpec(pp=2, dp_shard=2, tp=2, zero_stage=3)
    place = coordinates(layout, rank)
    assert rank == place["pp"] * 4 + place["dp_shard"] * 2 + place["tp"]


def test_each_group_says_its_hosts_and_the_level_that_holds_it(make_topology):
    layout = LayoutSpec(dp_replicate=2, tp=4)
    placed = describe_groups(layout, make_topology(per_host=4, hosts=2))
    rows = [(p.axis, p.ranks, p.hosts, p.level, p.leaves_host) for p in placed]
    assert rows == [
        ("dp_replicate", (0, 4), ("host0", "host1"), "network", True),
        ("dp_replicate", (1, 5), ("host0", "host1"), "network", True),
        ("dp_replicate", (2, 6), ("host0", "host1"), "network", True),
        ("dp_replicate", (3, 7), ("host0", "host1"), "network", True),
        ("tp", (0, 1, 2, 3), ("host0",), "node", False),
        ("tp", (4, 5, 6, 7), ("host1",), "node", False),
    ]


def test_expert_groups_are_described_where_experts_are_divided(make_topology):
    layout = LayoutSpec(dp_shard=4, ep=2, zero_stage=3)
    placed = describe_groups(layout, make_topology(per_host=4))
    assert [p.axis for p in placed] == ["dp_shard", "edp", "edp", "ep", "ep"]


def test_a_group_is_held_by_the_innermost_level_around_it(make_topology):
    topology = make_topology(per_host=4, hosts=2)
    members = np.array([[0, 3], [4, 5], [3, 4]])
    assert spanned_levels(members, topology).tolist() == [0, 0, 1]
