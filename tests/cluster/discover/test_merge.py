import pytest

from meshfit.cluster.discover.conclude import topology_of
from meshfit.cluster.discover.document import cluster_yaml
from meshfit.cluster.files import read_topology
from meshfit.errors import InputError
from tests.cluster.discover import outputs

H100 = "NVIDIA H100 80GB HBM3"
NVSWITCH = outputs.topo_matrix(outputs.gpus(8), lambda i, j: "NV18", trailing=outputs.affinities(8))


def test_files_complete_each_other(found):
    cluster = found(NVSWITCH, outputs.nvlink_status([H100] * 8, ["26.562 GB/s"] * 18))
    topology = topology_of(cluster)
    assert topology.accelerator.name == "H100-SXM5-80"
    assert topology.levels[0].bandwidth_bytes_per_s == pytest.approx(18 * 26.562e9)
    assert cluster.discovery.contradictions == ()


def test_contradictions_are_shown_and_the_first_holds(document):
    other = NVSWITCH.replace("32-63\t1", "32-63\t0")
    found = document(
        NVSWITCH, other.replace("NV18", "NV12"), outputs.nvlink_status([H100] * 8, ["25 GB/s"] * 18)
    )
    assert found["gpus"][7]["numa"] == "1"
    told = found["contradictions"]
    assert any("GPU7 numa: file0" in text and "says 1" in text for text in told)
    assert any("NV18 by file0" in text and "NV12 by file1" in text for text in told)


def test_different_numbers_of_gpus_are_a_contradiction(document):
    found = document(NVSWITCH, outputs.nvlink_status([H100] * 4, ["25 GB/s"] * 18))
    assert any("has 8 GPUs" in text and "4" in text for text in found["contradictions"])
    assert found["accelerators"] == 8


def test_links_that_are_up_and_hidden_by_mp_are_not_denied(document):
    found = document(
        outputs.topo_matrix(outputs.gpus(2), lambda i, j: "PIX"),
        outputs.topo_matrix(outputs.gpus(2), lambda i, j: "NV12"),
    )
    assert found["paths"]["GPU0"] == ["X", "NV12"]
    assert found["contradictions"] == []


def test_gpus_are_matched_by_bus_id_where_both_have_it(document):
    query = (
        "index, name, pci.bus_id, memory.total [MiB]\n"
        "0, NVIDIA H100 80GB HBM3, 00000000:03:00.0, 81559 MiB\n"
        "1, NVIDIA H100 80GB HBM3, 00000000:02:00.0, 81559 MiB\n"
        "2, NVIDIA H100 80GB HBM3, 00000000:01:00.0, 81559 MiB\n"
        "3, NVIDIA H100 80GB HBM3, 00000000:00:00.0, 80000 MiB\n"
    )
    found = document(outputs.nccl_xml(), query)
    assert [gpu["memory"] // 2**20 for gpu in found["gpus"]] == [80000, 81559, 81559, 81559]
    assert found["contradictions"] == []


def test_a_node_and_the_network_are_a_cluster(found, tmp_path):
    cluster = found(NVSWITCH, "SwitchName=s Nodes=n[01-04]\n", accelerator="H100-SXM")
    topology = topology_of(cluster)
    assert [(level.name, level.size, level.source) for level in topology.levels] == [
        ("link", 8, "spec"), ("leaf", 4, "guess"),
    ]  # fmt: skip
    assert topology.hosts == ("n01", "n02", "n03", "n04")
    path = tmp_path / "cluster.yaml"
    path.write_text(cluster_yaml(cluster))
    again = read_topology(str(path), tmp_path)
    assert (again.levels, again.hosts) == (topology.levels, topology.hosts)


def test_trays_that_share_a_clique_are_one_domain(found):
    tray = outputs.topo_matrix(outputs.gpus(4), lambda i, j: "NV18")
    fabric = "".join(
        f"tray{host:02d}: {line}\n"
        for host in range(18)
        for line in outputs.fabric(outputs.UUID, "5").splitlines()
    )
    cluster = found(tray, fabric, accelerator="GB200")
    [link] = topology_of(cluster).levels
    assert (link.name, link.size, link.bandwidth_bytes_per_s) == ("link", 72, 900e9)
    assert cluster.num_accelerators == 72


def test_what_is_missing_is_named(found):
    cluster = found(NVSWITCH)
    with pytest.raises(
        InputError, match=r"accelerator is not known .*bandwidth of link is not known"
    ):
        topology_of(cluster)
    with pytest.raises(InputError, match=r"no cluster\.yaml yet"):
        cluster_yaml(cluster)


def test_two_networks_are_refused(found):
    with pytest.raises(InputError, match="both about the network"):
        found("SwitchName=s Nodes=n[1-4]\n", "BlockName=b Nodes=n[1-4]\n")


def test_a_typed_accelerator_that_sources_contradict_is_shown(document):
    found = document(outputs.nvlink_status([H100], ["25 GB/s"] * 18), accelerator="A100-SXM")
    assert any("--accelerator says A100-SXM4-80" in text for text in found["contradictions"])


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=t Switches=a,b\nSwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-7]\n",
        "BlockName=a Nodes=n[0-3]\nBlockName=b Nodes=n[4-7]\nBlockSizes=4,8\n",
        outputs.kubernetes_nodes(8, per_domain=4),
    ],
)
def test_even_levels_hold_as_many_accelerators_as_all_hosts_have(found, text):
    tray = outputs.topo_matrix(outputs.gpus(4), lambda i, j: "NV18")
    topology = topology_of(found(tray, text, accelerator="GB200"))
    assert topology.num_accelerators == 32
    assert topology.num_hosts == 8
