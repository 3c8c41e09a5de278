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


@pytest.mark.parametrize(("gpus", "sizes"), [(64, [64]), (72, [72]), (128, [64, 2]), (96, [48, 2])])
def test_a_rack_of_hosts_is_one_domain_of_as_many_as_divide_the_job(gpus, sizes):
    topology = topology_of(row(gpu="GB200-192GB", gpus_per_node="4", n_gpus=str(gpus)))
    assert [level.size for level in topology.levels] == sizes
    assert topology.gpus_per_host == 4


def test_cards_beyond_those_of_the_usual_host_are_on_pcie():
    eight = topology_of(row(gpu="A100-80GB", interconnect="PCIe", n_gpus="8"))
    assert [(level.kind, level.size) for level in eight.levels] == [("bus", 8)]
    assert eight.gpus_per_host == 8


def test_hosts_beyond_the_usual_ones_need_a_printed_network():
    with pytest.raises(NotModelledError, match="no network of hosts of 8 A100-PCIe-80"):
        topology_of(row(gpu="A100-PCIe-80GB", n_gpus="16"))
    joined = topology_of(
        row(gpu="A100-PCIe-80GB", n_gpus="16", interconnect="100 Gb/s per GPU")
    ).levels
    assert [level.size for level in joined] == [8, 2]
    assert joined[-1].bandwidth_bytes_per_s == 12.5e9


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("MI250-64GB", "MI250-GCD"),
        ("MI250X-128GB", "MI250X-GCD"),
        ("GH200-96GB", "GH200-96"),
        ("A100-PCIe-40GB", "A100-PCIe-40"),
        ("RTX6000Ada-48GB", "RTX-6000-Ada"),
        ("RTX-PRO-6000-96GB", "RTX-PRO-6000-BSE"),
        ("B200-192GB", "B200-SXM-180"),
        ("H800-80GB", "H800-SXM5-80"),
    ],
)
def test_accelerators_are_found_by_the_names_of_tables(gpu, name):
    assert topology_of(row(gpu=gpu, n_gpus="1")).accelerator.name == name
