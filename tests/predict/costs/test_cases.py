"""Collectives of people in the field that must not be told from one another."""

import numpy as np
import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.predict.costs.collectives import CollectiveCosts
from meshfit.predict.costs.measured import ClusterCurves, cluster_curve

SIZES = (2**20, 2**26, 2**30)


def test_g13_an_all_to_all_rests_on_its_own_curve_and_never_on_that_of_an_all_reduce():
    """tinygrad/open-gpu-kernel-modules#17: forced peer access makes all-to-all slower on 8 x 4090."""
    topology = read_shorthand("8 RTX4090")
    sums = cluster_curve(SIZES, (1e-4, 4e-3, 6e-2))
    exchanges = cluster_curve(SIZES, (4e-4, 2e-2, 3e-1))

    def seconds(kind, curves):
        costs = CollectiveCosts(topology=topology, curves=ClusterCurves(curves), is_alone=True)
        group = costs.place(np.array([8]), np.array([1]))
        return float(costs.seconds(kind, np.array([2.0**26]), group)[0])

    shape = tuple(level.size for level in topology.levels)
    both = {("all_reduce", shape): sums, ("all_to_all", shape): exchanges}
    assert seconds("all_reduce", both) == pytest.approx(4e-3)
    assert seconds("all_to_all", both) == pytest.approx(2e-2)
    alone = {("all_reduce", shape): sums}
    assert seconds("all_to_all", alone) == seconds("all_to_all", {})
