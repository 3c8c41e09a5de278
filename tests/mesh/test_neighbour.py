import math

from hypothesis import given
from hypothesis import strategies as st

from meshfit.mesh.candidates import Candidates
from meshfit.mesh.neighbour import Neighbours
from meshfit.mesh.spec import LayoutSpec, make_layout
from tests.mesh.strategies import layouts


def test_one_halving_is_nearer_than_two():
    near = make_layout({"tp": 4, "dp_replicate": 2})
    far = make_layout({"tp": 2, "dp_replicate": 4})
    found = Neighbours(Candidates.from_layouts([far, near])).nearest(make_layout({"tp": 8}))
    assert found == near


def test_another_policy_is_nearer_than_another_degree():
    policy = make_layout({"dp_shard": 8, "zero_stage": 2})
    degree = make_layout({"dp_shard": 4, "zero_stage": 1, "dp_replicate": 2})
    asked = make_layout({"dp_shard": 8, "zero_stage": 1})
    assert Neighbours(Candidates.from_layouts([degree, policy])).nearest(asked) == policy


def test_no_layout_has_no_neighbour():
    nothing = Candidates.from_layouts([])
    assert Neighbours(nothing).nearest(LayoutSpec()) is None


def test_a_policy_that_no_candidate_has_is_as_far_from_each():
    asked = make_layout({"tp": 8, "schedule": "unheard of", "recompute": "unheard of"})
    near, far = make_layout({"tp": 4}), make_layout({"tp": 2})
    assert Neighbours(Candidates.from_layouts([far, near])).nearest(asked) == near


def test_several_neighbours_differ_in_their_degrees():
    wide, deep = make_layout({"dp_replicate": 3}), make_layout({"pp": 3})
    again = make_layout({"dp_replicate": 3, "micro_batch_size": 2})
    neighbours = Neighbours(Candidates.from_layouts([wide, again, deep]))
    assert neighbours.nearest_meshes(make_layout({"tp": 3}), 3) == [wide, deep]


def away(one, other):
    degrees = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "ep", "micro_batch_size")
    policies = ("sp", "cp_method", "schedule", "stage_layers", "zero_stage", "recompute")
    return sum(
        abs(math.log2(getattr(one, name) / getattr(other, name))) for name in degrees
    ) + 0.5 * sum(getattr(one, name) != getattr(other, name) for name in policies)


@given(st.lists(layouts, min_size=1, max_size=12), layouts)
def test_the_nearest_is_as_near_as_any(drawn, asked):
    found = Neighbours(Candidates.from_layouts(drawn)).nearest(asked)
    assert math.isclose(away(found, asked), min(away(one, asked) for one in drawn), abs_tol=1e-5)
