import pytest

from meshfit.cluster.catalogue import (
    DEFAULT_MATMUL_FRACTION,
    accelerator,
    accelerator_entry,
    accelerators,
    default_node_type,
    node_type,
    node_types,
)
from meshfit.errors import InputError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("A100-80G", "A100-SXM4-80"),
        ("A100-80GB", "A100-SXM4-80"),
        ("A100-SXM4-80", "A100-SXM4-80"),
        ("A100-40GB", "A100-SXM4-40"),
        ("a100_sxm", "A100-SXM4-80"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80"),
        ("A800-80GB", "A800-SXM4-80"),
        ("H100", "H100-SXM5-80"),
        ("H100-SXM", "H100-SXM5-80"),
        ("H100-SXM5", "H100-SXM5-80"),
        ("H100-80G", "H100-SXM5-80"),
        ("h100_sxm", "H100-SXM5-80"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80"),
        ("H100-96GB", "H100-SXM5-96"),
        ("H200-141GB", "H200-SXM-141"),
        ("V100-32GB", "V100-SXM2-32"),
        ("V100-16G", "V100-SXM2-16"),
        ("RTX3090", "RTX3090"),
        ("RTX3090-24G", "RTX3090"),
        ("RTX4090-24GB", "RTX4090"),
        ("RTX5090-32G", "RTX5090"),
        ("A10G-24GB", "A10G"),
        ("A6000-48GB", "RTX-A6000"),
        ("B200-180G", "B200-SXM-180"),
        ("MI300X-192G", "MI300X"),
        # the remaining spellings of the public cases and of the published training measurements
        ("A100", "A100-SXM4-80"),
        ("A100-SXM", "A100-SXM4-80"),
        ("A100-40G", "A100-SXM4-40"),
        ("A100-40G NVLink", "A100-SXM4-40"),
        ("A100-PCIe", "A100-PCIe-80"),
        ("A800", "A800-SXM4-80"),
        ("A800-80G", "A800-SXM4-80"),
        ("B200", "B200-SXM-180"),
        ("b200_sxm", "B200-SXM-180"),
        ("b300_sxm", "B300-SXM-288"),
        ("GB10-128G (273 GB/s)", "GB10"),
        ("H100-80GB", "H100-SXM5-80"),
        ("H100-95GB", "H100-SXM5-96"),
        ("H100-96G", "H100-SXM5-96"),
        ("H20", "H20-96"),
        ("H200", "H200-SXM-141"),
        ("H200-141G", "H200-SXM-141"),
        ("MI300X", "MI300X"),
        ("RTX 3090", "RTX3090"),
        ("RTX 4090", "RTX4090"),
        ("RTX4060-8G", "RTX4060"),
        ("RTX4090", "RTX4090"),
        ("RTX5090-laptop-24G", "RTX5090-Laptop"),
        ("T4-16G", "T4"),
        ("V100-16GB", "V100-SXM2-16"),
        ("V100-32G", "V100-SXM2-32"),
    ],
)
def test_spellings_of_the_field_are_known(spelling, name):
    assert accelerator(spelling).name == name


def test_a_name_of_two_products_is_none():
    with pytest.raises(InputError, match="unknown accelerator 'H200/H100 SXM'"):
        accelerator("H200/H100 SXM")


def test_an_unknown_name_comes_with_the_nearest():
    with pytest.raises(
        InputError, match=r"unknown accelerator 'H1O0-SXM'; did you mean H100-SXM\?"
    ):
        accelerator("H1O0-SXM")
    with pytest.raises(InputError, match="unknown node type 'DGX-H10'; did you mean DGX-H100"):
        node_type("DGX-H10")


@pytest.mark.parametrize(
    ("find", "entry"),
    [(accelerator_entry, entry) for entry in accelerators()]
    + [(node_type, node) for node in node_types()],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_spelling_finds_its_own_entry(find, entry):
    for spelling in (entry.name, *entry.aliases):
        assert find(spelling) is entry
        assert find(spelling.upper()) is entry


@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [
        ("GB200", 189471),
        ("GB300", 284208),
        ("B300", 275040),
        ("L40S", 46068),
        ("H200", 143771),
        ("RTX5090", 32607),
        ("RTX4090", 24564),
        ("RTX-PRO-6000", 97887),
    ],
)
def test_memory_is_what_the_driver_reports_where_that_is_known(name, mebibytes):
    entry = accelerator_entry(name)
    assert entry.spec.memory_bytes == mebibytes * 2**20
    assert entry.memory_from == "nvidia-smi"
    assert "memory_bytes" not in entry.unverified


@pytest.mark.parametrize("entry", accelerators(), ids=lambda entry: entry.name)
def test_every_row_is_complete_and_has_its_source(entry):
    spec = entry.spec
    assert spec.source
    assert spec.memory_bytes > 2**32
    assert spec.memory_bytes_per_s > 1e11
    assert 0 < spec.matmul_fraction <= 1
    assert {"bf16", "fp16"} & spec.peak_flops_per_s.keys()
    assert all(rate > 1e12 for rate in spec.peak_flops_per_s.values())
    assert entry.memory_from in {"nvidia-smi", "rocm-smi", "torch", "label"}
    if entry.memory_from in {"label", "torch"}:
        assert "memory_bytes" in entry.unverified


def test_matmul_fraction_is_measured_where_known_and_a_stated_default_elsewhere():
    assert accelerator("H100").matmul_fraction == pytest.approx(794.5 / 989)
    assert accelerator("MI300X").matmul_fraction == pytest.approx(668.4 / 1307)
    assert accelerator("L40S").matmul_fraction == DEFAULT_MATMUL_FRACTION


@pytest.mark.parametrize("node", node_types(), ids=lambda node: node.name)
def test_node_types_hold_known_accelerators(node):
    assert node.source
    for name in node.accelerators:
        assert accelerator(name).name == name
    assert node.nic_bytes_per_s is None or node.num_nics


def test_network_cards_are_shared_by_the_accelerators_of_a_node():
    p4d = node_type("p4d.24xlarge")
    assert p4d.num_nics == 4
    assert p4d.nic_bytes_per_s == 4 * 100e9 / 8 / 8


def test_the_default_node_type_is_the_first_that_names_the_accelerator():
    assert default_node_type("H100-SXM5-80") == node_type("DGX-H100")
    assert default_node_type("RTX4090") is None


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("4x A100 PCIe bridges", "A100-PCIe-bridges-4"),
        ("Meta 24k RoCE H100", "Meta-24k-RoCE"),
        ("DGX H200", "DGX-H100"),
        ("AWS p4de.24xlarge", "AWS-p4de"),
    ],
)
def test_spellings_of_node_types_in_hardware_tables_are_known(spelling, name):
    assert node_type(spelling).name == name


def test_cards_bridged_in_pairs_are_linked_two_by_two():
    bridged = node_type("A100-PCIe-bridges-4")
    assert (bridged.gpus_per_host, bridged.link_domain, bridged.num_nics) == (4, 2, None)
    assert default_node_type("A100-PCIe-80") == node_type("Azure-NC-A100-v4")
