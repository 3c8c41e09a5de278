"""One test a format: what it says, and that half of it is refused."""

import json

import pytest

from meshfit.errors import InputError
from tests.cluster.discover import outputs
from tests.cluster.discover.outputs import UUID

BUSES = [f"0000:{index:02x}:00.0" for index in (12, 34, 56, 78)]


def amd_json():
    return json.dumps(
        [
            {
                "gpu": i,
                "bdf": a,
                "links": [
                    {
                        "gpu": j, "bdf": b, "weight": 0 if a == b else 15, "link_status": "ENABLED",
                        "link_type": "SELF" if a == b else "XGMI", "num_hops": int(a != b),
                    }
                    for j, b in enumerate(BUSES)
                ],
            }
            for i, a in enumerate(BUSES)
        ]
    )  # fmt: skip


def test_names_and_links_of_nvlink_status(document):
    found = document(
        outputs.nvlink_status(["NVIDIA A100-SXM4-80GB"] * 2, ["25 GB/s"] * 11 + ["<inactive>"])
    )
    assert found["accelerator"] == "A100-SXM4-80"
    assert [(gpu["links"], gpu["links_down"]) for gpu in found["gpus"]] == [(11, 1), (11, 1)]
    assert any("275 GB/s, but A100-SXM4-80 has 300" in warning for warning in found["warnings"])


def test_a_missing_link_line_fails(document):
    text = outputs.nvlink_status(["NVIDIA H100 80GB HBM3"], ["25 GB/s"] * 4).replace(
        "\t Link 1: 25 GB/s\n", ""
    )
    with pytest.raises(InputError, match="link 2 of GPU0 where link 1 comes next"):
        document(text)


def test_peer_access_that_is_off_is_said(document):
    """Four PCIe GPUs whose driver forbids peer access."""
    paths = outputs.topo_matrix(outputs.gpus(4), lambda i, j: "PHB")
    found = document(paths, outputs.p2p(4, "CNS"), accelerator="RTX4090")
    assert found["accelerators"] == 4
    assert found["peer_access"]["GPU0-GPU3"] == "CNS"
    assert [level["kind"] for level in found["levels"]] == ["bus"]
    assert any("off for all pairs (CNS: chipset not supported)" in w for w in found["warnings"])


def test_total_and_free_memory_are_both_said(document):
    found = document(
        "index, name, pci.bus_id, memory.total [MiB], memory.free [MiB], pcie.link.gen.max, "
        "pcie.link.width.max, mig.mode.current\n"
        "0, NVIDIA L40S, 00000000:17:00.0, 46068 MiB, 45000 MiB, 4, 16, [N/A]\n"
        "1, NVIDIA L40S, 00000000:65:00.0, 46068 MiB, 30000 MiB, 4, 8, [N/A]\n"
    )
    assert (found["memory"], found["memory_free"]) == (46068 * 2**20, 30000 * 2**20)
    assert found["memory_from"] == "measured"
    assert [gpu["bus_id"] for gpu in found["gpus"]] == ["0000:17:00.0", "0000:65:00.0"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0, NVIDIA L40S", "line 2: 2 values under 3 titles"),
        ("0, NVIDIA L40S, 46068 MiX", "'46068 MiX' is no size"),
        ("7, NVIDIA L40S, 46068 MiB", "the rows are of GPU7"),
    ],
)
def test_a_broken_query_fails(document, row, message):
    with pytest.raises(InputError, match=message):
        document(f"index, name, memory.total [MiB]\n{row}\n")


def test_a_whole_query_log_has_names_memory_slots_and_the_fabric(document):
    found = document(outputs.nvidia_q(4))
    assert found["accelerator"] == "GB200"
    assert found["memory_free"] == 188000 * 2**20
    assert {gpu["fabric"] for gpu in found["gpus"]} == {f"{UUID}.7"}
    assert {(gpu["pcie_generation"], gpu["pcie_width"], gpu["mig"]) for gpu in found["gpus"]} == {
        (5, 16, False)
    }


def test_a_log_that_holds_fewer_gpus_than_it_says_is_cut_short(document):
    with pytest.raises(InputError, match="ends after 3 of 4 GPUs"):
        document(outputs.nvidia_q(3, attached=4))


@pytest.mark.parametrize(
    ("fabric", "warning"),
    [
        (outputs.fabric("00000000-0000-0000-0000-000000000000", "0"), "names no cluster"),
        (outputs.fabric(UUID, "1", state="In Progress"), "state In Progress"),
        (outputs.fabric(UUID, "0", status="Insufficient Resources"), "Insufficient Resources"),
        (outputs.fabric(UUID, "3"), "goes beyond this host"),
    ],
)
def test_a_fabric_block_is_a_domain_only_with_a_cluster_and_when_ready(document, fabric, warning):
    tray = outputs.topo_matrix(outputs.gpus(4), lambda i, j: "NV18")
    found = document(tray, fabric, accelerator="GB200")
    assert found["accelerators"] == 4
    assert [one["is_domain"] for one in found["fabric"]] == [warning.startswith("goes")]
    assert any(warning in text for text in found["warnings"])


def test_rocm_tables_are_a_mesh_of_xgmi(document, shape):
    found = document(outputs.rocm_topo(8), accelerator="MI300X")
    assert shape(found) == [("link", 8, "mesh")]
    assert found["levels"][0]["bandwidth"] == 64e9
    assert found["numa_nodes"] == 2


def test_rocm_over_pcie_follows_numa(document, shape):
    assert shape(document(outputs.rocm_topo(4, kind="PCIE", weight=40, hops=3))) == [
        ("numa", 2, "bus"), ("host", 2, "bus"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", [outputs.amd_smi_topology(BUSES), amd_json()])
def test_amd_smi_tables_and_json_say_the_same(document, shape, text):
    found = document(text)
    assert [gpu["bus_id"] for gpu in found["gpus"]] == BUSES
    assert shape(found) == [("link", 4, "mesh")]
    assert set(found["peer_access"].values()) == {"OK"}


@pytest.mark.parametrize("is_detected", [True, False])
def test_nccl_xml_pairs_gpus_and_cards_with_and_without_gpu_elements(document, shape, is_detected):
    found = document(outputs.nccl_xml(detected=is_detected))
    assert found["accelerators"] == 4
    assert found["accelerator"] == "H100-SXM5-80"
    assert found["numa_nodes"] == 2
    assert len(found["nics"]) == 2
    assert found["nearest_nics"]["GPU3"]["path"] == "PIX"
    assert shape(found) == [("pcie_switch", 2, "bus"), ("host", 2, "bus")]


def test_links_to_a_switch_join_all(document, shape):
    found = document(outputs.nccl_xml(links=18))
    assert shape(found) == [("link", 4, "switch")]
    assert found["levels"][0]["bandwidth"] == 450e9
    assert found["network_cards"][0]["bandwidth"] == 50e9


def test_broken_xml_fails_with_its_line(document):
    text = outputs.nccl_xml()
    with pytest.raises(InputError, match=r"line \d+: broken XML"):
        document(text[: len(text) // 2])
    with pytest.raises(InputError, match=r"line \d+: <gpu dev='x'> is no whole number"):
        document(text.replace('dev="3"', 'dev="x"'))


def test_a_slurm_tree_is_tiers(document, shape):
    found = document(
        "SwitchName=s0 Switches=s[1-2]\nSwitchName=s1 Nodes=n[0-3] LinkSpeed=100\n"
        "SwitchName=s2 Nodes=n[4-7]  # the other leaf\n"
    )
    assert found["hosts"] == [f"n{index}" for index in range(8)]
    assert shape(found) == [("leaf", 4, "switch"), ("spine", 2, "switch")]
    assert found["levels"][0]["bandwidth"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[3-4]\n", "host n3 is at a and at b"),
        ("SwitchName=a Switches=b\n", "names b below it, which is not described"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "is above itself"),
        ("SwitchName=a Nodes=n[0-\n", "line 1"),
        ("SwitchName=a\n", "line 1: a has neither Nodes nor Switches"),
        ("BlockName=a Nodes=n[0-3]\nBlockSizes=x\n", "line 2: BlockSizes 'x'"),
        ("BlockName=a Nodes=n0\nSwitchName=s Nodes=n1\n", "both SwitchName and BlockName"),
    ],
)
def test_a_broken_slurm_file_fails(document, text, message):
    with pytest.raises(InputError, match=message):
        document(text)


def test_the_default_topology_of_a_slurm_yaml_counts(document, shape):
    text = (
        "- topology: a\n  flat: true\n- topology: b\n  cluster_default: true\n  block:\n"
        "    block_sizes: [4, 8]\n    blocks:\n"
        "    - {block: b1, nodes: 'n[0-3]'}\n    - {block: b2, nodes: 'n[4-7]'}\n"
    )
    assert shape(document(text)) == [("block", 4, "switch"), ("block8", 2, "switch")]


def test_node_labels_make_nvlink_domains_of_whole_racks(document, shape):
    found = document(outputs.kubernetes_nodes(36, per_domain=18))
    assert found["accelerators"] == 144
    assert found["accelerator"] == "GB200"
    assert shape(found) == [("link", 72, "switch"), ("tier1", 2, "switch")]
    assert found["levels"][0]["bandwidth"] == 900e9


def test_a_model_of_topograph_is_domains_and_switches(document, shape):
    text = (
        "switches:\n  top: {switches: [a, b]}\nblocks:\n"
        "- {switch: a, nodes: ['n[0-1]'], annotations: {accelerator.topology.x/domain: d0}}\n"
        "- {switch: b, nodes: ['n[2-3]'], annotations: {accelerator.topology.x/domain: d1}}\n"
    )
    assert shape(document(text)) == [("link", 2, "switch"), ("spine", 2, "switch")]


def test_an_infiniband_fabric_has_rails_and_a_ratio(document, shape):
    found = document(outputs.ibnetdiscover(leaves=8, hosts=32, uplinks=16))
    [leaf] = found["levels"]
    assert (leaf["name"], leaf["size"], leaf["rails"], leaf["oversubscription"]) == (
        "leaf",
        32,
        True,
        2.0,
    )


def test_hwloc_places_gpus_and_cards(document, shape):
    found = document(outputs.hwloc_xml(2, gpus_per_node=2))
    assert found["accelerators"] == 4
    assert found["nics"] == ["mlx5_0", "mlx5_1"]
    assert found["numa_nodes"] == 2
    assert shape(found) == [("host_bridge", 2, "bus"), ("host", 2, "bus")]


@pytest.mark.parametrize("text", ["hello\n", "a: 1\n", "{}", "<html></html>", "GPU\n", "1,2,3\n"])
def test_what_is_no_topology_names_what_would_be(document, text):
    with pytest.raises(InputError, match=r"no topology that is known here; known: .*Slurm"):
        document(text)


def test_an_older_model_of_topograph_says_the_same(document, shape):
    text = (
        "switches:\n- {name: top, switches: [a, b]}\n- {name: a, capacity_blocks: [c0]}\n"
        "- {name: b, capacity_blocks: [c1]}\ncapacity_blocks:\n"
        "- {name: c0, type: GB200, nvlink: d0, nodes: [n0, n1]}\n"
        "- {name: c1, type: GB200, nvlink: d1, nodes: [n2, n3]}\n"
    )
    assert shape(document(text)) == [("link", 2, "switch"), ("spine", 2, "switch")]


def test_an_nvlink_domain_over_several_leaves_swallows_their_tier(document, shape):
    """Two domains of four racks each, whose leaves are below spines of two."""
    blocks = "".join(
        f"- {{switch: leaf{i}, nodes: ['n[{i}0-{i}3]'], annotations: {{accelerator.topology.x/domain: d{i // 4}}}}}\n"
        for i in range(8)
    )
    spines = "".join(
        f"  spine{i}: {{switches: [leaf{2 * i}, leaf{2 * i + 1}]}}\n" for i in range(4)
    )
    found = document(
        f"switches:\n  core: {{switches: [spine0, spine1, spine2, spine3]}}\n{spines}blocks:\n{blocks}"
    )
    assert len(found["hosts"]) == 32
    assert shape(found) == [("link", 16, "switch"), ("core", 2, "switch")]
    assert any("leaf divides the domains inside it" in warning for warning in found["warnings"])


def test_a_rack_without_nodes_is_said(document):
    text = "switches:\n  core: {switches: [a, b]}\nblocks:\n- {switch: a, nodes: ['n[0-3]']}\n"
    found = document(text)
    assert len(found["hosts"]) == 4
    assert any("switches without nodes: b" in warning for warning in found["warnings"])


def test_a_host_without_a_label_is_where_its_domain_is(document, shape):
    gone = "      fabric.topograph.run/tier-0: leaf1\n      fabric.topograph.run/tier-1: spine\n"
    found = document(outputs.kubernetes_nodes(4, per_domain=2).replace(gone, "", 1))
    assert shape(found) == [("link", 8, "switch"), ("tier1", 2, "switch")]
    assert any(
        "1 hosts, as node02, are in no domain of tier1" in warning for warning in found["warnings"]
    )


def test_a_host_in_no_domain_makes_a_level_uneven(document, shape):
    found = document(outputs.kubernetes_nodes(3, per_domain=2))
    assert found["accelerators"] == 12
    assert shape(found) == [("link", 8, "switch"), ("tier1", 2, "switch")]
    assert found["levels"][0]["sizes"] == [4, 8]
    assert any("level link is uneven" in problem for problem in found["missing"])
