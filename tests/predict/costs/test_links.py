import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.cluster.shorthand import read_shorthand
from meshfit.predict.costs.collectives import CollectiveCosts
from meshfit.predict.costs.constants import link_constants
from meshfit.predict.costs.links import LinkLaw, link_kind, pipelined_s


@given(start=st.floats(1e-6, 1e-3), wire=st.floats(1e-7, 10))
def test_the_ideal_pipeline_is_the_best_cut_into_pieces(start, wire):
    pieces = np.geomspace(1e-3, 1e6, 100_000)
    by_cut = start + wire + start * pieces + wire / pieces
    best = float(pipelined_s(np.array(start), np.array(wire), 1.0))
    assert best <= by_cut.min() * (1 + 1e-6)


@given(size=st.floats(1, 1e11), ramp=st.floats(0, 2))
def test_a_larger_message_never_takes_less_time(size, ramp):
    one, more = pipelined_s(np.array(1e-5), np.array([size, size * 1.1]) / 4e11, ramp)
    assert one < more


@pytest.mark.parametrize(
    ("accelerator", "level", "kind"),
    [
        ("A100-SXM4-80", "switch", "NVLink3"),
        ("H200-SXM-141", "switch", "NVLink4"),
        ("GB200", "switch", "NVLink5"),
        ("MI300X", "mesh", "xGMI"),
        ("L40S", "bus", "PCIe"),
        ("A100-PCIe-80", "bus", "PCIe"),
    ],
)
def test_links_are_known_by_accelerator_and_level(accelerator, level, kind):
    assert link_kind(accelerator, level) == kind


def law(collective, kind="NVLink4"):
    return LinkLaw(constants=link_constants(), collective=collective, kind=kind)


def test_switches_sum_for_all_reduce_over_more_than_four_ranks_only():
    four, eight = law("all_reduce").share_inside(np.array([4.0, 8.0]))
    plain_four, plain_eight = law("all_reduce", "NVLink3").share_inside(np.array([4.0, 8.0]))
    assert eight / four > plain_eight / plain_four
    gather = law("all_gather").share_inside(np.array([4.0, 8.0]))
    assert gather[1] / gather[0] < eight / four


def test_a_send_starts_as_fast_as_an_all_to_all_of_two():
    two = np.array([2.0])
    assert law("send_recv").start_s(two, 3e-6) == law("all_to_all").start_s(two, 3e-6)


def formula(cluster, kind, size_bytes, degree):
    costs = CollectiveCosts(topology=read_shorthand(cluster), is_alone=True, uses_node_curves=False)
    group = costs.place(np.array([degree]), np.array([1]))
    return float(costs.formula_s(kind, np.array([float(size_bytes)]), group)[0])


def test_efa_starts_slower_than_infiniband_and_sends_as_fast():
    small = [formula(name, "all_reduce", 64, 16) for name in ("2x8 AWS-p5", "2x8 DGX-H100")]
    large = [formula(name, "all_reduce", 64e9, 16) for name in ("2x8 AWS-p5", "2x8 DGX-H100")]
    assert small[0] - small[1] == pytest.approx(link_constants()["startup.EFA"], rel=0.01)
    assert large[0] == pytest.approx(large[1], rel=0.05)


def test_published_curves_come_out_within_a_fifth():
    """nccl-tests: 2 GiB over 2 p4de (51.4 ms), 8 GiB over 8 nodes of H100 (44.0 ms), 512 MiB in one
    H100 node (2.11 ms); topology/collectives.csv."""
    assert formula("2x8 AWS-p4de", "all_reduce", 2**31, 16) == pytest.approx(51.4e-3, rel=0.2)
    assert formula("8x8 DGX-H100", "all_reduce", 2**33, 64) == pytest.approx(44.0e-3, rel=0.2)
    assert formula("8 H100-SXM", "all_reduce", 2**29, 8) == pytest.approx(2.11e-3, rel=0.2)


def test_alone_collectives_are_faster_than_beside_computation():
    topology = read_shorthand("4x8 H100-SXM")
    size, alone = np.array([1e9]), CollectiveCosts(topology=topology, is_alone=True)
    beside = CollectiveCosts(topology=topology)
    group = alone.place(np.array([32]), np.array([1]))
    assert alone.seconds("all_reduce", size, group) < beside.seconds("all_reduce", size, group)
