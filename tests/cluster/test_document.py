from pathlib import Path

from meshfit.cluster.catalogue import accelerator_entry, node_type
from meshfit.cluster.document import accelerator_document, node_type_document, topology_document
from meshfit.cluster.files import read_topology


def test_published_keys_of_topo_are_there():
    document = topology_document(read_topology("2x8 H100-SXM", Path()))
    assert document["accelerators"] == 16
    assert document["accelerator"] == "H100-SXM5-80"
    assert document["hosts"] == ["host0", "host1"]
    assert [
        (level["name"], level["size"], level["kind"], level["bandwidth"], level["from"])
        for level in document["levels"]
    ] == [("link", 8, "switch", 450e9, "spec"), ("network", 2, "switch", 50e9, "spec")]
    assert document["nics"] is None
    assert document["numa_nodes"] is None
    assert any("discovered on this machine only" in warning for warning in document["warnings"])


def test_this_machine_names_its_network_cards_and_counts_its_numa_nodes(tmp_path):
    for name in ("mlx5_1", "mlx5_0"):
        (tmp_path / "class/infiniband" / name).mkdir(parents=True)
    for name in ("node0", "node1", "possible"):
        (tmp_path / "devices/system/node" / name).mkdir(parents=True)
    topology = read_topology({"here": {"ranks": 1, "device": "cpu"}}, Path())
    document = topology_document(topology, tmp_path)
    assert document["nics"] == ["mlx5_0", "mlx5_1"]
    assert document["numa_nodes"] == 2
    assert any("guesses" in warning for warning in document["warnings"])


def test_unverified_figures_are_warned_of():
    document = topology_document(read_topology("8 H100-SXM", Path()))
    assert any("unverified figures: fp32_flops_per_s" in text for text in document["warnings"])


def test_catalogue_entries_carry_their_source():
    assert accelerator_document(accelerator_entry("H200"))["memory_from"] == "nvidia-smi"
    assert node_type_document(node_type("p5"))["source"]
