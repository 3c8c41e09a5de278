import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshfit.compare.factors import name_factor
from meshfit.mesh.spec import LayoutSpec

MESH = LayoutSpec(dp_replicate=2, dp_shard=3, tp=5, pp=7)
"""Degrees whose products and roots are all different."""


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (6, "the data-parallel degree (dp=6)"),
        (1 / 5, "one over the tensor-parallel degree (tp=5)"),
        (11, "the number of micro-batches (m=11)"),
        (3, "the shards of a replica (dp_shard=3)"),
        (math.sqrt(2), "the square root of the replicas of a shard (dp_replicate=2)"),
        (1 / math.sqrt(7), "one over the square root of the pipeline-parallel degree (pp=7)"),
        (
            1 / 35,
            "one over the product of the tensor-parallel degree (tp=5) and the "
            "pipeline-parallel degree (pp=7)",
        ),
    ],
)
def test_a_ratio_is_named_by_the_degree_it_equals(ratio, words):
    assert name_factor(ratio, MESH, 11, tolerance=1e-4) == words


def test_degrees_that_are_equal_are_all_named():
    layout = LayoutSpec(dp_replicate=4, tp=4)
    words = name_factor(4.0, layout, 1, tolerance=1e-4)
    assert words == "the data-parallel degree (dp=4) or the tensor-parallel degree (tp=4)"


def test_a_degree_is_preferred_to_the_root_of_another_unless_roots_come_first():
    layout = LayoutSpec(dp_shard=4, tp=2)
    assert name_factor(2.0, layout, 1, tolerance=1e-4) == "the tensor-parallel degree (tp=2)"
    assert (
        name_factor(2.0, layout, 1, tolerance=1e-4, roots_first=True)
        == "the square root of the data-parallel degree (dp=4)"
    )


@pytest.mark.parametrize("ratio", [1.0, 1.00005, 1.37, 0.0, -2.0, math.inf, math.nan])
def test_a_ratio_that_no_degree_explains_has_no_name(ratio):
    assert name_factor(ratio, MESH, 11, tolerance=1e-4) is None


def test_one_process_has_no_factor_to_be_wrong_by():
    assert name_factor(2.0, LayoutSpec(), 1, tolerance=1e-4) is None


DEGREE = st.integers(1, 16)


@given(tp=DEGREE, pp=DEGREE, dp=DEGREE, m=DEGREE, noise=st.floats(-0.9e-4, 0.9e-4))
def test_every_degree_and_its_inverse_is_recognised_through_rounding(tp, pp, dp, m, noise):
    layout = LayoutSpec(tp=tp, pp=pp, dp_replicate=dp)
    for text, degree in (("tp", tp), ("pp", pp), ("dp", dp), ("m", m)):
        assume(degree > 1)
        words = name_factor(degree * (1 + noise), layout, m, tolerance=1e-4)
        assert f"({text}={degree})" in words
        inverse = name_factor((1 + noise) / degree, layout, m, tolerance=1.1e-4)
        assert inverse.startswith("one over ")
        assert f"({text}={degree})" in inverse
