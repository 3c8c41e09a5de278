import numpy as np
import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.predict.costs.collectives import CollectiveCosts
from meshfit.predict.costs.constants import shipped_constants
from meshfit.predict.costs.measured import ClusterCurves, cluster_curve
from tests.predict.builders import cluster

SIZES, SECONDS = (2**10, 2**20, 2**30), (1e-5, 1e-4, 1e-1)
CURVES = ClusterCurves({("all_reduce", (8, 1)): cluster_curve(SIZES, SECONDS)})


def seconds(size_bytes, degree, stride, kind="all_reduce"):
    costs = CollectiveCosts(topology=cluster(nodes=4), curves=CURVES)
    group = costs.place(np.array([degree]), np.array([stride]))
    return float(costs.seconds(kind, np.array([float(size_bytes)]), group)[0])


@pytest.mark.parametrize(("size", "expected"), list(zip(SIZES, SECONDS, strict=True)))
def test_measured_points_come_back_where_the_shape_is_the_measured_one(size, expected):
    assert seconds(size, 8, 1) == pytest.approx(expected)


def test_between_and_beyond_points_times_follow_the_curve():
    assert seconds(2**15, 8, 1) == pytest.approx((1e-5 * 1e-4) ** 0.5)
    assert seconds(2**31, 8, 1) == pytest.approx(0.2)
    assert seconds(1, 8, 1) == pytest.approx(1e-5)


@pytest.mark.parametrize(
    ("degree", "stride", "kind"), [(4, 1, "all_reduce"), (4, 8, "all_reduce"), (8, 1, "all_gather")]
)
def test_other_shapes_and_collectives_are_left_to_the_formula(degree, stride, kind):
    plain = CollectiveCosts(topology=cluster(nodes=4))
    group = plain.place(np.array([degree]), np.array([stride]))
    assert seconds(1e6, degree, stride, kind) == plain.seconds(kind, np.array([1e6]), group)[0]


def test_noise_never_makes_a_larger_message_faster():
    curve = cluster_curve((2**10, 2**12, 2**14), (3e-5, 1e-5, 4e-5))
    assert list(curve.seconds(np.array([2.0**10, 2**12, 2**14]))) == pytest.approx(
        [3e-5, 3e-5, 4e-5]
    )


def test_what_was_measured_alone_takes_longer_beside_computation():
    topology = read_shorthand("2x8 H100-SXM")
    costs = CollectiveCosts(topology=topology, curves=CURVES)
    alone = CollectiveCosts(topology=topology, curves=CURVES, is_alone=True)
    group = costs.place(np.array([8]), np.array([1]))
    sizes = np.array([2.0**20])
    assert alone.seconds("all_reduce", sizes, group)[0] == pytest.approx(1e-4)
    share = shipped_constants()["link.share"]
    assert costs.seconds("all_reduce", sizes, group)[0] == pytest.approx(1e-4 / share)
