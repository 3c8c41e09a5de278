import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshfit.cluster.shorthand import read_shorthand
from meshfit.mesh.groups import DENSE_FOLD, groups
from meshfit.mesh.orders import levels_of_axes, orders, ranks_in_order, same_order
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
