from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.cluster.topology import Level, Topology
from meshfit.predict.costs.collectives import SHARED_CORE_WAIT_S, CollectiveCosts, place
from tests.predict.builders import cluster

KINDS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]


def ints(*values):
    return np.array(values, dtype=np.int64)


def seconds(topology, kind, size_bytes, degree, stride):
    costs = CollectiveCosts(topology=topology)
    group = costs.place(ints(degree), ints(stride))
    return float(costs.seconds(kind, np.array([float(size_bytes)]), group)[0])


@pytest.mark.parametrize(
    ("degree", "stride", "members"),
    [
        (8, 1, (8, 1)),  # one node
        (4, 8, (1, 4)),  # one rank of each of four nodes
        (16, 2, (4, 4)),  # every second rank of four nodes
        (32, 1, (8, 4)),
        (2, 4, (2, 1)),
        (1, 1, (1, 1)),
    ],
)
def test_degree_and_stride_say_how_many_members_share_a_node(degree, stride, members):
    group = place(cluster(nodes=4), ints(degree), ints(stride))
    assert tuple(float(here[0]) for here in group.members) == members


@given(degree=st.sampled_from([1, 2, 4, 8, 16, 32]), stride=st.sampled_from([1, 2, 4, 8, 16]))
def test_members_of_all_levels_multiply_to_the_degree(degree, stride):
    group = place(cluster(nodes=64), ints(degree), ints(stride))
    assert np.prod([here[0] for here in group.members]) == degree


def test_all_reduce_in_a_node_moves_the_nccl_bus_factor():
    # 2 (n - 1) / n * S / B * 1.2 + 2 * log2(8) * 2 us
    expected = 2 * 7 / 8 * 1e9 / 400e9 * 1.2 + 2 * 3 * 2e-6
    assert seconds(cluster(), "all_reduce", 1e9, 8, 1) == pytest.approx(expected)


def test_a_hierarchical_all_reduce_sends_only_a_share_between_nodes():
    inner = 2 * 7 / 8 * 1e9 / 400e9
    outer = 2 * 3 / 4 * (1e9 / 8) / 50e9
    expected = 1.2 * max(inner, outer) + 2 * (3 * 2e-6 + 2 * 10e-6)
    assert seconds(cluster(nodes=4), "all_reduce", 1e9, 32, 1) == pytest.approx(expected)


def test_a_group_with_one_rank_a_node_uses_one_nic():
    expected = 1.2 * 2 * 3 / 4 * 1e9 / 50e9 + 2 * 2 * 10e-6
    assert seconds(cluster(nodes=4), "all_reduce", 1e9, 4, 8) == pytest.approx(expected)


def test_all_to_all_sends_the_share_of_peers_outside_the_node():
    expected = 1.2 * 1e9 * (24 / 32) / 50e9 + (3 * 2e-6 + 2 * 10e-6)
    assert seconds(cluster(nodes=4), "all_to_all", 1e9, 32, 1) == pytest.approx(expected)


def test_a_send_crosses_the_outermost_level_of_its_axis():
    expected = 1.2 * 1e6 / 50e9 + 10e-6
    assert seconds(cluster(nodes=4), "send_recv", 1e6, 4, 8) == pytest.approx(expected)


@given(
    kind=st.sampled_from(KINDS),
    size_bytes=st.floats(1, 1e10),
    degree=st.sampled_from([1, 2, 8, 32]),
    stride=st.sampled_from([1, 8]),
)
def test_one_rank_waits_for_nobody(kind, size_bytes, degree, stride):
    taken = seconds(cluster(nodes=64), kind, size_bytes, degree, stride)
    assert (taken == 0) == (degree == 1)


def test_oversubscription_slows_only_the_level_that_has_it():
    def taper(ratio):
        node, rail = cluster(nodes=4).levels
        tapered = Level(
            name=rail.name, size=rail.size, kind=rail.kind, latency_s=rail.latency_s,
            bandwidth_bytes_per_s=rail.bandwidth_bytes_per_s, oversubscription=ratio,
        )  # fmt: skip
        return Topology(accelerator=cluster().accelerator, levels=(node, tapered), gpus_per_host=8)

    assert seconds(taper(7), "all_gather", 1e9, 8, 1) == seconds(taper(1), "all_gather", 1e9, 8, 1)
    slow = seconds(taper(7), "all_gather", 1e9, 4, 8) - 3 * 10e-6
    assert slow == pytest.approx(7 * (seconds(taper(1), "all_gather", 1e9, 4, 8) - 3 * 10e-6))


@pytest.mark.parametrize(("kind", "rate"), [("switch", 64e9), ("mesh", 64e9 * 7), ("bus", 8e9)])
def test_a_mesh_adds_links_and_a_bus_shares_one(kind, rate):
    level = Level(name="box", size=8, kind=kind, bandwidth_bytes_per_s=64e9, latency_s=0)
    topology = Topology(accelerator=cluster().accelerator, levels=(level,), gpus_per_host=8)
    expected = 1.2 * 7 / 8 * 1e9 / rate
    assert seconds(topology, "all_gather", 1e9, 8, 1) == pytest.approx(expected)


def test_ranks_that_share_cores_wait_for_their_turn():
    alone = seconds(cluster(), "all_reduce", 1e6, 8, 1)
    shared = replace(cluster(), oversubscribed=True)
    assert seconds(shared, "all_reduce", 1e6, 8, 1) == pytest.approx(alone + SHARED_CORE_WAIT_S)
    assert seconds(shared, "all_reduce", 1e6, 1, 1) == 0


SHARED_HOSTS = replace(cluster(nodes=4, device_type="cpu"), oversubscribed=True)
"""Gloo over 4 hosts of 8 ranks: 400 GB/s a rank and 2 us inside, 50 GB/s a rank and 10 us between."""


@pytest.mark.parametrize(("kind", "times", "steps"), [("all_reduce", 2, 62), ("all_gather", 1, 31)])
def test_gloo_goes_round_one_ring_in_which_a_host_has_its_link_for_one_rank(kind, times, steps):
    between = times * 31 / 32 * 1e9 / (8 * 50e9)
    inside = times * 31 / 32 * 1e9 / 400e9
    expected = max(between, inside) + steps * (10e-6 + SHARED_CORE_WAIT_S)
    assert seconds(SHARED_HOSTS, kind, 1e9, 32, 1) == pytest.approx(expected)


def test_rings_of_one_rank_a_host_share_its_link():
    expected = 2 * 3 / 4 * 1e9 / 50e9 + 6 * (10e-6 + SHARED_CORE_WAIT_S)
    assert seconds(SHARED_HOSTS, "all_reduce", 1e9, 4, 8) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "sent", "steps"),
    [("broadcast", 1, 5), ("send_recv", 1, 1), ("all_to_all", 24 / 32, 1)],
)
def test_other_collectives_of_gloo_wait_as_often_as_they_pass_something_on(kind, sent, steps):
    expected = sent * 1e9 / 50e9 + steps * (10e-6 + SHARED_CORE_WAIT_S)
    assert seconds(SHARED_HOSTS, kind, 1e9, 32, 1) == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_gloo_waits_for_no_core_where_each_rank_has_one(kind):
    alone = replace(SHARED_HOSTS, oversubscribed=False)
    waited = seconds(SHARED_HOSTS, kind, 1.0, 2, 1) - seconds(alone, kind, 1.0, 2, 1)
    in_steps = {"all_reduce": 2, "reduce_scatter": 2}.get(kind, 1)
    assert waited == pytest.approx(in_steps * SHARED_CORE_WAIT_S)


class OnlyLargeCurves:
    """Measured above 1 MB."""

    def seconds(self, kind, size_bytes, group):
        return np.where(size_bytes > 1e6, 0.5, np.nan)


def test_a_measured_curve_goes_before_the_formula_where_it_covers():
    costs = CollectiveCosts(topology=cluster(), curves=OnlyLargeCurves())
    group = costs.place(ints(8, 8, 1), ints(1, 1, 1))
    found = costs.seconds("all_reduce", np.array([1e9, 1e3, 1e9]), group)
    formula = CollectiveCosts(topology=cluster()).seconds(
        "all_reduce", np.array([1e9, 1e3, 1e9]), group
    )
    assert found.tolist() == [0.5, formula[1], 0]


def test_a_reduce_scatter_over_gloo_costs_what_an_all_reduce_does():
    nodes, size = cluster(nodes=2, device_type="cpu"), 2**20
    scatter = seconds(nodes, "reduce_scatter", size, 16, 1)
    assert scatter == seconds(nodes, "all_reduce", size, 16, 1)
    assert scatter > seconds(nodes, "all_gather", size, 16, 1)
    on_gpus = cluster(nodes=2)
    assert seconds(on_gpus, "reduce_scatter", size, 16, 1) < seconds(
        on_gpus, "all_reduce", size, 16, 1
    )
