import pytest

from meshfit.cluster.shorthand import is_shorthand, read_shorthand
from meshfit.errors import InputError


def levels(text):
    topology = read_shorthand(text)
    return [(level.name, level.size, level.kind) for level in topology.levels]


def test_nodes_take_the_links_and_network_cards_of_their_node_type():
    topology = read_shorthand("8x8 H100-SXM")
    link, network = topology.levels
    assert topology.num_accelerators == 64
    assert topology.num_hosts == 8
    assert topology.accelerator.name == "H100-SXM5-80"
    assert (link.size, link.kind, link.bandwidth_bytes_per_s) == (8, "switch", 450e9)
    assert (network.size, network.bandwidth_bytes_per_s, network.rails) == (8, 50e9, True)
    assert {link.source, network.source} == {"spec"}


def test_one_count_is_one_node():
    assert levels("8 H100-SXM") == [("link", 8, "switch")]
    assert levels("1 H100-SXM") == [("link", 1, "switch")]


def test_a_node_type_can_be_named_instead():
    assert read_shorthand("2x8 GCP-a3-high").levels[1].bandwidth_bytes_per_s == 12.5e9
    assert read_shorthand("2x8 p4de").accelerator.name == "A100-SXM4-80"


def test_an_nvl72_rack_is_one_domain_of_many_hosts():
    rack = read_shorthand("18x4 GB200")
    assert [level.size for level in rack.levels] == [72]
    assert rack.gpus_per_host == 4
    assert rack.num_hosts == 18
    assert levels("36x4 GB200") == levels("2x72 GB200")
    assert levels("2x72 GB200") == [("link", 72, "switch"), ("network", 2, "switch")]


def test_bridged_pairs_sit_on_the_bus_of_their_host():
    assert levels("4 A100-PCIe") == [("link", 2, "switch"), ("pcie", 2, "bus")]


def test_without_a_link_the_host_is_a_bus_and_its_shared_rate_a_guess():
    [bus] = read_shorthand("4 L40S").levels
    assert (bus.kind, bus.size, bus.source) == ("bus", 4, "guess")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0x8 H100", "both counts must be at least 1"),
        ("-1x8 H100", "both counts must be at least 1"),
        ("8 H1O0", "unknown accelerator 'H1O0'; did you mean H100"),
        ("2x16 H100", "a DGX-H100 joins 8 H100-SXM5-80, not 16; write 4x8"),
        ("20x4 GB200", "80 accelerators do not fill link domains of 72"),
        ("2x6 GB200", "do not fill whole hosts"),
        ("3 A100-PCIe", "do not fill link domains of 2"),
        ("2x4 L40S", "knows no network of L40S nodes; write cluster.yaml"),
        ("4 TPUv5p", "how TPUv5p are joined is not in the catalogue"),
        ("8x H100", "Write '1x8 H100' for one host of 8, '8x8 H100' for 8 hosts of 8"),
        ("2 x H100", "Write '1x2 H100' for one host of 2"),
        ("H100", "is not a shorthand; write it like '8x8 H100-SXM'"),
    ],
)
def test_what_cannot_be_built_says_what_would_work(text, message):
    with pytest.raises(InputError, match=message):
        read_shorthand(text)


def test_a_file_name_is_no_shorthand():
    assert is_shorthand("8x8 H100-SXM")
    assert not is_shorthand("cluster.yaml")
    assert not is_shorthand("here")
