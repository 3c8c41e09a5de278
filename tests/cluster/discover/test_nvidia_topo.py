import pytest

from meshfit.errors import InputError
from tests.cluster.discover.outputs import affinities, gpus, sockets, topo_matrix, with_spaces


def nvswitch(count=8, cards=0):
    """GPUs on a switch, a card near each of the first ones."""
    labels = gpus(count) + [f"NIC{index}" for index in range(cards)]

    def path(i, j):
        if i < count and j < count:
            return "NV18"
        low, high = sorted((i, j))
        return "PIX" if high - count == low else "SYS"

    legend = {f"NIC{index}": f"mlx5_{index}" for index in range(cards)} or None
    return topo_matrix(labels, path, trailing=affinities(count), legend=legend)


PCIE = topo_matrix(gpus(4), sockets(4), trailing=affinities(4))


@pytest.mark.parametrize("text", [nvswitch(cards=8), with_spaces(nvswitch(cards=8))])
def test_a_node_with_a_card_each_is_read_with_tabs_or_spaces(document, shape, text):
    found = document(text)
    assert found["accelerators"] == 8
    assert found["nics"] == [f"mlx5_{index}" for index in range(8)]
    assert found["numa_nodes"] == 2
    assert shape(found) == [("link", 8, "switch")]
    assert found["nearest_nics"]["GPU3"] == {"path": "PIX", "nics": ["mlx5_3"]}
    assert found["gpus"][7]["cpus"] == "32-63"


def test_bandwidth_needs_the_accelerator_since_a_link_is_25_or_50_gb_per_s(document):
    assert document(nvswitch())["levels"][0]["bandwidth"] is None
    hopper = document(nvswitch(), accelerator="H100-SXM")
    blackwell = document(nvswitch(), accelerator="B200")
    assert [d["levels"][0]["bandwidth"] for d in (hopper, blackwell)] == [450e9, 900e9]
    assert hopper["levels"][0]["from"] == "spec"


def test_windows_ends_of_line_and_prompts_do_not_matter(document):
    text = "root@node:~# nvidia-smi topo -m\n" + PCIE
    assert document(text.replace("\n", "\r\n"))["accelerators"] == 4


def test_lines_of_a_parallel_shell_are_told_apart_by_host(document):
    text = "".join(
        f"{host}: {line}\n" for host in ("n1", "n2") for line in PCIE.splitlines() if line
    )
    found = document(text)
    assert found["hosts"] == ["n1", "n2"]
    assert found["accelerators"] == 8
    assert [level["name"] for level in found["levels"]] == ["numa", "host", "network"]


@pytest.mark.parametrize(
    "header",
    ["", "GPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
     "    GPU0GPU1GPU2GPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"],
)  # fmt: skip
def test_a_header_that_is_missing_or_glued_or_lost_its_tab_changes_nothing(document, shape, header):
    rows = PCIE.partition("\n")[2]
    found = document(f"{header}\n{rows}")
    assert found["accelerators"] == 4
    assert found["numa_nodes"] == 2
    assert shape(found) == [("numa", 2, "bus"), ("host", 2, "bus")]


def test_an_old_token_is_the_link_between_sockets(document):
    old = topo_matrix(gpus(4), sockets(4, near="PIX", far="SOC"))
    assert document(old)["paths"]["GPU0"] == ["X", "PIX", "SYS", "SYS"]


def test_cards_may_go_by_their_device_names_in_any_order(document):
    labels = [*gpus(2), "mlx5_2", "rocep49s0"]
    found = document(topo_matrix(labels, lambda i, j: "SYS"))
    assert found["nics"] == ["mlx5_2", "rocep49s0"]


def test_gpus_linked_in_pairs_are_domains_of_two(document, shape):
    """NVLink bridges: a pair is fast, a third GPU is behind PCIe (case g01)."""
    pairs = topo_matrix(
        gpus(8),
        lambda i, j: "NV12" if i // 2 == j // 2 else sockets(8)(i, j),
        trailing=affinities(8),
    )
    found = document(pairs, accelerator="A100-PCIe")
    assert found["domains"]["link"] == [
        ["GPU0", "GPU1"], ["GPU2", "GPU3"], ["GPU4", "GPU5"], ["GPU6", "GPU7"],
    ]  # fmt: skip
    assert shape(found) == [("link", 2, "switch"), ("numa", 2, "bus"), ("host", 2, "bus")]
    assert [level["bandwidth"] for level in found["levels"]] == [300e9, 32e9, 32e9]


def test_four_gpus_with_six_links_each_are_a_mesh_unless_a_switch_is_said(document, shape):
    four = topo_matrix(gpus(4), lambda i, j: "NV6")
    found = document(four)
    assert shape(found) == [("link", 4, "mesh")]
    assert any("taken as links between pairs" in warning for warning in found["warnings"])


def test_a_grace_tray_counts_nodes_with_processors_only(document):
    """Four of 72 GPUs: their own memory is a NUMA node each, which affinities list too."""
    trailing = [
        "0-71\t0,3-9,11-17\t\t2", "0-71\t0,3-9,11-17\t\t10",
        "72-143\t1,19-25,27-33\t\t18", "72-143\t1,19-25,27-33\t\t26",
    ]  # fmt: skip
    found = document(
        topo_matrix(gpus(4), lambda i, j: "NV18", trailing=trailing), accelerator="GB200"
    )
    assert found["numa_nodes"] == 2
    assert [gpu["gpu_numa_id"] for gpu in found["gpus"]] == [2, 10, 18, 26]
    assert found["levels"][0]["bandwidth"] == 900e9
    assert any("4 of 72 visible" in warning for warning in found["warnings"])


def test_with_spaces_an_empty_cell_is_left_open_rather_than_guessed(document):
    trailing = ["0-31\t0\t\tN/A", "\t1\t\tN/A"]
    text = topo_matrix(gpus(2), lambda i, j: "PHB", trailing=trailing)
    assert [gpu["numa"] for gpu in document(text)["gpus"]] == ["0", "1"]
    found = document(with_spaces(text))
    assert [gpu["numa"] for gpu in found["gpus"]] == ["0", None]
    assert any("which one is empty cannot be told" in warning for warning in found["warnings"])


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (PCIE.replace("GPU1\tNODE", "GPU1"), r"line 3: row GPU1"),
        (PCIE.replace("GPU2\tSYS\tSYS", "GPU2\tSYSSYS"), r"line 4: row GPU2"),
        (PCIE.replace("0-31\t0", "PH0-31\t0", 1), r"line 2: row GPU0: 'PH0-31' under CPU Affinity"),
        (
            PCIE.replace("GPU3\tSYS", "GPU3\tNODE"),
            r"row GPU0 says SYS of GPU3, but row GPU3 \(line 5\)",
        ),
        (PCIE.replace("GPU2\tSYS", "GPU2\tXSYS"), r"line 4: row GPU2: 'XSYS' is no path"),
        (PCIE.replace("GPU1\tNODE\t X ", "GPU1\t X \tNODE"), r"line 3: .*X is under GPU0"),
        ("\n".join(PCIE.splitlines()[:4]), "no row for GPU3 after this one"),
        (PCIE + PCIE, "a second table"),
        (PCIE.replace("GPU2\t", "GPU1\t", 1).replace("\nGPU2", "\nGPU1"), "twice"),
        (nvswitch(cards=8).replace("  NIC7: mlx5_7\n", ""), "the NIC legend does not name NIC7"),
    ],
)
def test_a_broken_matrix_fails_with_its_line(document, broken, message):
    with pytest.raises(InputError, match=message):
        document(broken)
