import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.cluster.shorthand import read_shorthand
from meshfit.errors import InputError
from meshfit.mesh.groups import DENSE_FOLD, coordinates, groups, ranks_by_place
from meshfit.mesh.orders import levels_of_axes, orders, ranks_in_order, same_order, whole_order
from meshfit.mesh.spec import AXES, LayoutSpec

DEGREES = st.sampled_from([1, 2, 3, 4])


@st.composite
def layouts(draw):
    return LayoutSpec(**{axis: draw(DEGREES) for axis in AXES})


@given(layout=layouts())
def test_orders_are_different_and_hold_every_axis_once(layout):
    found = orders(layout)
    assert len(found) == len(set(found)) >= 1
    assert all(sorted(order) == sorted(AXES) for order in found)
    assert any(same_order(order, AXES, layout) for order in found)


def test_data_parallel_axes_stay_neighbours():
    layout = LayoutSpec(dp_replicate=2, dp_shard=2, cp=2, tp=2, pp=2)
    for order in orders(layout):
        data = [order.index(axis) for axis in ("dp_replicate", "dp_shard", "cp")]
        assert max(data) - min(data) == 2
        assert abs(order.index("dp_shard") - order.index("cp")) == 1


@given(layout=layouts(), data=st.data())
def test_the_rank_order_gives_an_engine_of_fixed_axes_the_same_groups(layout, data):
    order = data.draw(st.sampled_from(orders(layout)))
    by_accelerator = np.array(ranks_in_order(layout, order, AXES))
    assert sorted(by_accelerator) == list(range(layout.world_size))
    for axis in AXES:
        placed = {frozenset(by_accelerator[group]) for group in groups(layout, axis, order)}
        own = {frozenset(group) for group in groups(layout, axis, AXES)}
        assert placed == own


def test_levels_say_where_an_axis_sits():
    topology, layout = read_shorthand("2x8 H100-SXM"), LayoutSpec(tp=8, dp_shard=2)
    inner = levels_of_axes(layout, topology, AXES, DENSE_FOLD)
    assert inner == {"dp_shard": "network", "tp": "link"}
    outer = ("dp_replicate", "pp", "cp", "tp", "dp_shard")
    assert levels_of_axes(layout, topology, outer, DENSE_FOLD) == {
        "dp_shard": "link",
        "tp": "network",
    }


@given(layout=layouts(), data=st.data())
def test_every_order_of_a_layout_can_be_asked_for(layout, data):
    order = data.draw(st.sampled_from(orders(layout)))
    asked = [axis for axis in order if getattr(layout, axis) > 1]
    assert same_order(whole_order(asked, AXES), order, layout)


@given(layout=layouts(), data=st.data())
def test_ranks_by_place_are_the_inverse_of_coordinates(layout, data):
    order = data.draw(st.sampled_from(orders(layout)))
    rank = data.draw(st.integers(0, layout.world_size - 1))
    place = coordinates(layout, rank, order)
    assert ranks_by_place(layout, AXES, order)[tuple(place[axis] for axis in AXES)] == rank


@pytest.mark.parametrize(
    ("axes", "order"),
    [
        ([], AXES),
        (["tp", "pp"], ("dp_replicate", "dp_shard", "cp", "tp", "pp")),
        (["tp", "dp_replicate"], ("pp", "tp", "dp_replicate", "dp_shard", "cp")),
        (["dp_replicate", "cp"], ("pp", "dp_replicate", "dp_shard", "cp", "tp")),
        (["cp", "dp_replicate"], ("pp", "dp_shard", "cp", "dp_replicate", "tp")),
    ],
)
def test_axes_that_are_left_out_of_an_order_come_as_early_as_they_can(axes, order):
    assert whole_order(axes, AXES) == order


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["dpshard"], "'dpshard' is no axis of the mesh; did you mean dp_shard?"),
        (["tp", "tp"], "rank_order tp, tp names an axis twice"),
        (["dp_shard", "tp", "cp"], "rank_order dp_shard, tp, cp: .* must stay neighbours"),
        (["dp_shard", "dp_replicate", "cp"], "of these dp_shard and cp"),
    ],
)
def test_an_order_that_cannot_be_is_refused_with_the_reason(axes, message):
    with pytest.raises(InputError, match=message):
        whole_order(axes, AXES)
