import pytest

from meshfit.validate.hardware import topology_of
from meshfit.validate.rows import NotModelledError
from tests.validate.builders import row


def levels(**columns):
    return topology_of(row(**columns)).levels


def test_accelerators_and_nodes_are_the_catalogues():
    topology = topology_of(row(n_gpus="64"))
    assert topology.accelerator.name == "H100-SXM5-80"
    assert [level.size for level in topology.levels] == [8, 8]
    assert topology.levels[1].bandwidth_bytes_per_s == 50e9


def test_memory_is_the_rows_own_capacity():
    assert topology_of(row(capacity_bytes="1000")).accelerator.memory_bytes == 1000


@pytest.mark.parametrize(
    ("interconnect", "per_node", "expected"),
    [
        ("NVLink; 400 Gb/s RDMA per GPU", "8", 50e9),
        ("NVLink; 400 Gb/s CX-7 RDMA per GPU", "8", 50e9),
        ("1600 Gbps node-node RoCE", "8", 25e9),
        ("4x100 Gb RoCE per node", "8", 6.25e9),
        ("Selene: NVLink + 8x200 Gb HDR IB per node (from memory)", "8", 25e9),
        ("50 GBps intra-node, 400 Gbps inter-node (Omni-Path)", "4", 12.5e9),
    ],
)
def test_a_printed_network_goes_before_the_catalogues(interconnect, per_node, expected):
    network = levels(n_gpus="32", gpus_per_node=per_node, interconnect=interconnect)[-1]
    assert network.name == "network"
    assert network.bandwidth_bytes_per_s == pytest.approx(expected)


def test_a_printed_rate_inside_a_node_goes_before_the_catalogues():
    inside = levels(gpu="V100-32GB", gpus_per_node="4", interconnect="50 GBps intra-node")[0]
    assert inside.bandwidth_bytes_per_s == 50e9


def test_a_named_cloud_has_its_own_network():
    assert levels(n_gpus="32", interconnect="AWS p5.48xlarge EFA")[-1].rails is False


def test_a_printed_power_limit_is_known():
    assert topology_of(row(flags="GPU: HBM2e, 500W limit")).accelerator.power_limit_w == 500


def test_pcie_is_another_accelerator():
    spec = topology_of(row(gpu="A100-80GB", interconnect="PCIe", n_gpus="1")).accelerator
    assert spec.name == "A100-PCIe-80"


def test_a_count_that_fills_no_whole_nodes_takes_smaller_ones():
    assert [level.size for level in levels(n_gpus="12")] == [6, 2]


def test_an_unknown_accelerator_is_a_reason():
    with pytest.raises(NotModelledError, match="not in the catalogue: Q9000"):
        topology_of(row(gpu="Q9000"))


def test_an_unknown_network_is_a_reason():
    with pytest.raises(NotModelledError, match="no network"):
        topology_of(row(gpu="RTX4090-24GB", n_gpus="16", gpus_per_node="8"))
