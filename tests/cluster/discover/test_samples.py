"""Outputs collected from the field, beside the project where it is developed; not part of it."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from meshfit.cluster.discover.conclude import read_cluster
from meshfit.cluster.discover.document import discovery_document
from meshfit.errors import InputError

SAMPLES = Path(__file__).parents[4] / "shared/topology/samples"
pytestmark = pytest.mark.skipif(
    not SAMPLES.is_dir(),
    reason="other people's outputs lie beside the project where it is developed; test_formats.py has ours",
)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a sample's name and its note say. ``levels``: name, size and kind."""

    gpus: int | None = None
    nics: int | None = None
    numa: int | None = None
    levels: tuple[tuple[str, int, str], ...] | None = None
    hosts: int = 1
    warns: tuple[str, ...] = ()
    says: dict = field(default_factory=dict)


LINK8 = (("link", 8, "switch"),)
TOPO = {
    "01_8gpu_nv18_9nic_rail_pxb_ansi": Expected(gpus=8, nics=9, numa=2, levels=LINK8),
    "04_dgx1_p100_soc_legend_glued_header": Expected(
        gpus=8, nics=4, levels=(("link", 8, "mesh"),), warns=("12 of 28 pairs have no direct link",)
    ),
    "06_4xv100_aws_p3_8xlarge_numa_na": Expected(
        gpus=4, nics=0, levels=(("link", 4, "mesh"),), warns=("pairs have 1, 2 links",)
    ),
    "08_8xv100_alicloud_no_numa_column": Expected(gpus=8, nics=0, levels=(("link", 8, "mesh"),)),
    "10_4xa100_sxm_numa_1_3_split": Expected(gpus=4, nics=0, numa=2, levels=(("link", 4, "switch"),)),
    "11_4xa100_one_roce_nic_sys": Expected(gpus=4, nics=1, numa=1, levels=(("link", 4, "switch"),)),
    "13_8xa100_2nic_shared": Expected(gpus=8, nics=2, numa=2, levels=LINK8),
    "15_8xh100_12nic_gpu_rows_only": Expected(
        gpus=8, nics=12, numa=2, levels=LINK8, warns=("rows of network cards are missing",)
    ),
    "17_6gpu_pix_pairs_ansi_uneven_numa": Expected(
        gpus=6, nics=0, numa=2, levels=(("pcie_switch", 2, "bus"), ("host", 3, "bus")),
        warns=("NUMA domains of 4, 2 GPUs",),
    ),
    "19_4gpu_node_pairs_4nic": Expected(
        gpus=4, nics=4, numa=2, levels=(("numa", 2, "bus"), ("host", 2, "bus"))
    ),
    "21_5gpu_mixed_workstation_phb_node_sys": Expected(
        gpus=5, nics=0, numa=2, levels=(("host", 5, "bus"),), warns=("NUMA domains of 1, 4 GPUs",)
    ),
    "23_8gpu_all_sys_no_nic": Expected(
        gpus=8, nics=0, numa=2, levels=(("numa", 4, "bus"), ("host", 2, "bus")),
        warns=("12 pairs of GPUs are SYS though both have the same NUMA affinity",),
    ),
    "24_8gpu_pix_pxb_sys_1nic": Expected(
        gpus=8, nics=1, numa=2,
        levels=(("pcie_switch", 2, "bus"), ("pcie_bridges", 2, "bus"), ("host", 2, "bus")),
    ),
    "26_4gpu_nv18_partial_cpu_affinity": Expected(
        gpus=4, nics=0, numa=2, levels=(("link", 4, "switch"),)
    ),
    "28_2gpu_pix_header_without_leading_tab": Expected(
        gpus=2, nics=0, numa=1, levels=(("host", 2, "bus"),)
    ),
    "30_8xa100_spaces_no_nic": Expected(gpus=8, nics=0, numa=2, levels=LINK8),
    "32_8x4090_node_quads": Expected(
        gpus=8, nics=0, numa=2, levels=(("numa", 4, "bus"), ("host", 2, "bus"))
    ),
}  # fmt: skip
OTHERS = {
    "nvidia_other/topo_p2p_r_8xh100.txt": Expected(gpus=8),
    "nvidia_other/topo_p2p_rw_2x5090.txt": Expected(
        gpus=2, warns=("peer access is off for all pairs (GNS: GPU not supported)",)
    ),
    "nvidia_other/nvlink_s_a100_partial.txt": Expected(
        gpus=1, says={"accelerator": "A100-SXM4-80"}, warns=("10 links of together 250 GB/s",)
    ),
    "nvidia_other/query_gpu_names_mem.csv": Expected(
        gpus=1, says={"accelerator": "RTX4090", "memory": 24564 * 2**20}
    ),
    "nvidia_other/fabric_h200_completed_no_clique.txt": Expected(
        warns=("names no cluster: it does not go beyond the host",)
    ),
    "nvidia_other/fabric_pdsh_multi_node.txt": Expected(
        hosts=3, says={"hosts": ["node-10", "node-07", "node-08"]}
    ),
    "rocm/rocm_smi_showtopo_8xMI300X.txt": Expected(gpus=8, numa=2, levels=(("link", 8, "mesh"),)),
    "rocm/rocm_smi_showtopo_4xMI300A.txt": Expected(gpus=4, numa=4, levels=(("link", 4, "mesh"),)),
    "rocm/rocm_smi_showtopo_4gpu_pcie.txt": Expected(gpus=4, numa=1, levels=(("host", 4, "bus"),)),
    "nccl_xml/aws_g5.48xl-topo.xml": Expected(
        numa=2, nics=0, warns=("nothing says which of 9 PCI devices are GPUs",)
    ),
    "nccl_xml/aws_p4de-24xl-topo.xml": Expected(
        gpus=8, nics=4, numa=2, says={"accelerator": "A100-SXM4-80"},
        levels=(("pcie_switch", 2, "bus"), ("host_bridge", 2, "bus"), ("host", 2, "bus")),
    ),
    "nccl_xml/azure_ncv4-topo.xml": Expected(
        gpus=4, nics=1, numa=4, warns=("GPU3: 12 links whose target is itself",)
    ),
    "nccl_xml/azure_ndv2-topo.xml": Expected(
        gpus=8, nics=1, numa=2, levels=(("host_bridge", 4, "bus"), ("host", 2, "bus"))
    ),
    "nccl_xml/azure_ndv4-topo.xml": Expected(
        gpus=8, nics=8, numa=4, levels=(("pcie_switch", 2, "bus"), ("host", 4, "bus"))
    ),
    "nccl_xml/oci_H100-topology.xml": Expected(
        gpus=8, nics=16, numa=2, levels=LINK8, says={"accelerator": "H100-SXM5-80"}
    ),
    "nccl_xml/oci_topo-flattened-b4.xml": Expected(gpus=8, nics=8, numa=4),
    "nccl_xml/rccl_topo_4p_940.xml": Expected(
        gpus=4, nics=4, numa=4, levels=(("link", 4, "mesh"),), warns=("cxi0: speed 200000000",)
    ),
    "nccl_xml/rccl_topo_8p_90a.xml": Expected(
        gpus=8, nics=1, numa=1, levels=(("link", 8, "mesh"),), warns=("16 of 28 pairs",)
    ),
    "nccl_xml/rccl_topo_8p_940vm.xml": Expected(
        gpus=8, nics=8, numa=2, levels=(("link", 8, "mesh"),), says={"accelerator": "MI300X"}
    ),
    "nccl_xml/rccl_topo_8p_pcie_2nic.xml": Expected(
        gpus=8, nics=2, numa=1, levels=(("pcie_bridges", 4, "bus"), ("host", 2, "bus"))
    ),
    "slurm/expected.slinky-dra-block.conf": Expected(
        hosts=96,
        levels=(
            ("block", 8, "switch"), ("block16", 2, "switch"), ("block32", 2, "switch"),
            ("cluster", 3, "switch"),
        ),
    ),
    "slurm/topology_tree_large.conf": Expected(
        hosts=10000,
        levels=(
            ("leaf", 20, "switch"), ("spine", 20, "switch"), ("core", 13, "switch"),
            ("tier3", 2, "switch"),
        ),
        warns=("domains of spine have 10 to 20 members",),
    ),
    "slurm/topology_all_types.yaml": Expected(
        hosts=4, levels=(("leaf", 2, "switch"), ("spine", 2, "switch")),
        warns=("topology topo1 is the cluster's; left out: topo2",),
    ),
    "k8s_cloud/nvl72.yaml": Expected(
        hosts=72, levels=(("link", 18, "switch"), ("spine", 2, "switch"), ("core", 2, "switch"))
    ),
    "k8s_cloud/small-tree.yaml": Expected(
        hosts=6, levels=(("link", 3, "switch"), ("spine", 2, "switch"))
    ),
    "ib/ibnetdiscover_ndr_rail.txt": Expected(
        hosts=93, warns=("leaf SITE-IBLEAF-001: 17 hosts (mlx5_5 of each), 16 uplinks",)
    ),
    "hwloc_xml/32em64t-2n8c2t-pci-normalio.xml": Expected(gpus=4, nics=3, numa=2),
    "hwloc_xml/40intel64-2g2n4c+pcilocality.xml": Expected(gpus=0, nics=5, numa=4),
    "hwloc_xml/nvidia-dgx-gb10.xml": Expected(gpus=0, nics=0, numa=1),
}  # fmt: skip
REFUSED = {"k8s_cloud/gcp-sim-block.json": "a request to topograph"}
ALL = {f"nvidia_topo_m/{name}.txt": expected for name, expected in TOPO.items()} | OTHERS


def read(name):
    return discovery_document(read_cluster([SAMPLES / name]))


@pytest.mark.parametrize("name", ALL)
def test_a_sample_says_what_its_note_says(name, shape):
    expected, document = ALL[name], read(name)
    assert document["accelerators"] == expected.gpus
    nics = document["nics"]
    assert (None if nics is None else len(nics)) == expected.nics
    assert document["numa_nodes"] == expected.numa
    assert len(document["hosts"]) == expected.hosts
    if expected.levels is not None:
        assert tuple(shape(document)) == expected.levels
    for key, value in expected.says.items():
        assert document[key] == value
    for warning in expected.warns:
        assert any(warning in found for found in document["warnings"])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_topology_is_refused(name):
    with pytest.raises(InputError, match=REFUSED[name]):
        read(name)


def test_every_sample_has_a_test():
    there = {str(path.relative_to(SAMPLES)) for path in SAMPLES.glob("*/*")}
    assert there == set(ALL) | set(REFUSED)


@pytest.mark.parametrize(
    "name", [n for n in ALL if n.startswith(("nvidia_topo_m", "rocm", "nccl"))]
)
def test_a_sample_cut_after_any_line_of_its_table_never_says_fewer_gpus(name, tmp_path):
    whole = read(name)
    lines = (SAMPLES / name).read_text().splitlines(keepends=True)
    for end in range(len(lines)):
        cut = tmp_path / "cut"
        cut.write_text("".join(lines[:end]))
        try:
            found = discovery_document(read_cluster([cut]))
        except InputError:
            continue
        assert found["accelerators"] == whole["accelerators"]


def test_names_of_cards_come_from_the_legend():
    assert read("nvidia_topo_m/01_8gpu_nv18_9nic_rail_pxb_ansi.txt")["nics"] == [
        *(f"mlx5_{index}" for index in range(10, 18)), "mlx5_bond_0",
    ]  # fmt: skip


def test_each_gpu_has_its_own_card_or_shares_one():
    rails = read("nvidia_topo_m/15_8xh100_12nic_gpu_rows_only.txt")["nearest_nics"]
    assert [found["nics"] for found in rails.values()] == [
        [f"NIC{index}"] for index in (0, 3, 4, 5, 6, 9, 10, 11)
    ]
    shared = read("nvidia_topo_m/13_8xa100_2nic_shared.txt")["nearest_nics"]
    assert [found["nics"] for found in shared.values()] == [["mlx5_0"]] * 4 + [["mlx5_1"]] * 4
    assert shared["GPU2"]["path"] == "NODE"


def test_an_empty_affinity_shifts_nothing():
    gpus = read("nvidia_topo_m/26_4gpu_nv18_partial_cpu_affinity.txt")["gpus"]
    assert [gpu["cpus"] for gpu in gpus] == ["44-51,148-155", None, None, None]
    assert [gpu["numa"] for gpu in gpus] == ["0", "1", "1", "1"]
    assert {gpu["gpu_numa_id"] for gpu in gpus} == {None}


def test_rails_and_oversubscription_come_from_the_fabric():
    [leaf, _] = read("ib/ibnetdiscover_ndr_rail.txt")["levels"]
    assert leaf["rails"]
    assert leaf["oversubscription"] == pytest.approx(16 / 15)


def test_two_cliques_are_two_nvlink_domains():
    document = read("nvidia_other/fabric_pdsh_multi_node.txt")
    assert sorted(map(len, document["network"]["nvlink"].values())) == [1, 2]
