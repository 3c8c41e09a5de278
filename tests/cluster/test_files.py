import pytest
import yaml

from meshfit.cluster.files import read_topology
from meshfit.errors import InputError

RAIL = """
schema_version: 1
accelerator: H100-SXM
gpus_per_host: 8
levels:
  - {name: node, size: 8, kind: switch, bandwidth: 450 GB/s}
  - {name: rail, size: 32, kind: switch, bandwidth: 50 GB/s, latency: 14 us, rails: true, oversubscription: 1}
hosts: node[01-32]
memory: total
host_memory: 2 TiB
storage: {write: 2 GB/s per node}
"""
NVL72 = """
schema_version: 1
accelerator: GB200
gpus_per_host: 4
levels:
  - {name: rack, size: 72, kind: switch, bandwidth: 900 GB/s, from: spec}
  - {name: fabric, size: 8, kind: switch, bandwidth: 400 Gbit/s}
"""
SPINE = """
schema_version: 1
accelerator: H100-SXM
gpus_per_host: 8
levels:
  - {name: node, size: 8, kind: switch, bandwidth: 450 GB/s}
  - {name: pod, size: 384, kind: switch, bandwidth: 50 GB/s}
  - {name: spine, size: 8, kind: switch, bandwidth: 50 GB/s, oversubscription: 7}
"""
BRIDGES = """
schema_version: 1
accelerator: A100-PCIe
gpus_per_host: 8
levels:
  - {name: bridge, size: 2, kind: mesh, bandwidth: 300 GB/s}
  - {name: socket, size: 2, kind: bus, bandwidth: 25 GB/s}
  - {name: host, size: 2, kind: bus, bandwidth: {value: 10 GB/s, from: measured}}
"""
TORUS = """
schema_version: 1
accelerator: TPUv5p
gpus_per_host: 4
levels:
  - {name: x, size: 4, kind: torus, bandwidth: 90 GB/s, latency: 1 us}
  - {name: y, size: 4, kind: torus, bandwidth: 90 GB/s, latency: 1 us}
  - {name: z, size: 8, kind: torus, bandwidth: 90 GB/s, latency: 1 us}
"""


def read(tmp_path, text):
    (tmp_path / "cluster.yaml").write_text(text)
    return read_topology("cluster.yaml", tmp_path)


def test_a_cluster_file_holds_levels_hosts_memory_and_storage(tmp_path):
    topology = read(tmp_path, RAIL)
    node, rail = topology.levels
    assert topology.num_accelerators == 256
    assert topology.domain_sizes() == (8, 256)
    assert (node.name, node.bandwidth_bytes_per_s, node.source) == ("node", 450e9, "typed")
    assert (rail.latency_s, rail.rails, rail.oversubscription) == (14e-6, True, 1.0)
    assert topology.hosts[0] == "node01"
    assert topology.host_of(255) == "node32"
    assert topology.host_memory_bytes == 2 * 2**40
    assert topology.storage_write_bytes_per_s == 2e9


@pytest.mark.parametrize(
    ("text", "sizes", "hosts"),
    [
        (NVL72, (72, 576), 144),
        (SPINE, (8, 3072, 24576), 3072),
        (BRIDGES, (2, 4, 8), 1),
        (TORUS, (4, 16, 128), 32),
    ],
    ids=["nvl72", "clos_7_to_1", "dual_socket_bridges", "tpu_torus"],
)
def test_four_kinds_of_cluster_are_expressible_in_ten_lines(tmp_path, text, sizes, hosts):
    topology = read(tmp_path, text)
    assert len(text.strip().splitlines()) <= 10
    assert topology.domain_sizes() == sizes
    assert topology.num_hosts == hosts


def test_a_number_says_where_it_comes_from(tmp_path):
    assert read(tmp_path, NVL72).levels[0].source == "spec"
    assert [level.source for level in read(tmp_path, BRIDGES).levels] == [
        "typed",
        "typed",
        "measured",
    ]


def test_a_missing_latency_is_that_of_the_transport(tmp_path):
    rack, fabric = read(tmp_path, NVL72).levels
    assert rack.latency_s < fabric.latency_s
    socket = read(tmp_path, BRIDGES).levels[1]
    assert rack.latency_s < socket.latency_s < fabric.latency_s


def test_memory_can_be_given_in_bytes(tmp_path):
    topology = read(tmp_path, RAIL.replace("memory: total", "memory: 70 GiB", 1))
    assert topology.accelerator.memory_bytes == 70 * 2**30


def test_the_content_of_a_file_can_stand_in_the_job(tmp_path):
    assert read_topology(yaml.safe_load(RAIL), tmp_path) == read(tmp_path, RAIL)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpus_per_host: 8", "gpu_per_host: 8", "unknown key 'gpu_per_host'.*'gpus_per_host'"),
        ("kind: switch", "kid: switch", "levels.0.kid"),
        ("kind: switch", "kind: switched", "'switched' is not one of"),
        ("size: 8", "size: 0", "levels.0.size: 0 is not allowed; expected greater than 0"),
        ("size: 8", "size: -8", "levels.0.size: -8 is not allowed"),
        ("size: 8", "size: eight", "levels.0.size: 'eight' is not allowed"),
        ("size: 8", "size: 10000000000000", "at most 1,048,576 can be planned for"),
        ("size: 8", "size: 8.5", "levels.0.size: 8.5 is not allowed"),
        ("450 GB/s", "0 GB/s", "bandwidth '0 GB/s' must be greater than 0"),
        ("450 GB/s", "-450 GB/s", "is not a bandwidth"),
        ("450 GB/s", "-1.0", "bandwidth -1.0 must be greater than 0"),
        ("450 GB/s", "450 GB", "is not a bandwidth: per what"),
        ("450 GB/s", "[450]", "levels.0.bandwidth"),
        ("14 us", "14 uss", "unknown unit 'uss'"),
        ("14 us", "-14.0", "latency -14.0 must not be negative"),
        ("oversubscription: 1", "oversubscription: 0.5", "greater than or equal to 1"),
        ("gpus_per_host: 8", "gpus_per_host: 6", "gpus_per_host 6 does not fit level 'node' of 8"),
        ("gpus_per_host: 8", "gpus_per_host: 0", "gpus_per_host: 0 is not allowed"),
        ("gpus_per_host: 8", "gpus_per_host: 512", "gpus_per_host 512 is more than the 256"),
        ("node[01-32]", "node[01-31]", "hosts names 31, but 256 accelerators at 8 a host are 32"),
        ("H100-SXM", "H1O0-SXM", "unknown accelerator"),
        ("schema_version: 1", "schema_version: 2", "schema_version"),
        ("memory: total", "memory: free", "memory free is known on this machine only"),
        ("memory: total", "memory: 0 GiB", "must be greater than 0"),
        ("2 GB/s per node", "0 GB/s per node", "must be greater than 0"),
        ("name: rail", "name: node", "levels need names of their own"),
        ("rails: true", "form: spec", "unknown key .levels.1.form.; did you mean .from."),
    ],
)
def test_a_mistake_is_named_with_what_would_work(tmp_path, old, new, message):
    assert old in RAIL
    with pytest.raises(InputError, match=message):
        read(tmp_path, RAIL.replace(old, new, 1))


@pytest.mark.parametrize("text", ["", "- 1\n- 2", "just words", "levels: [", "levels: []"])
def test_what_is_no_cluster_file_is_refused(tmp_path, text):
    with pytest.raises(InputError):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("missing.yaml", "cannot read"),
        ("somewhere", "no shorthand, no .yaml file and not `here`; write '8x8 H100-SXM'"),
        ("auto x H100-SXM", "auto is for serving"),
        ({"here": {"rank": 4}}, "unknown key 'here.rank'; did you mean 'ranks'"),
        ({"here": {"ranks": 0}}, "here.ranks: 0 is not allowed"),
        ({"here": {"ranks": "four"}}, "here.ranks: 'four' is not allowed"),
        ({"here": {}, "levels": []}, "unknown key 'levels'"),
        ({}, "'schema_version' is missing"),
    ],
)
def test_a_value_that_is_no_cluster_says_what_one_is(tmp_path, value, message):
    with pytest.raises(InputError, match=message):
        read_topology(value, tmp_path)


@pytest.mark.parametrize("text", ["999999999x8 H100-SXM", "1000000x8 H100-SXM"])
def test_more_accelerators_than_can_be_searched_are_refused(tmp_path, text):
    with pytest.raises(InputError, match="at most 1,048,576 can be planned for"):
        read_topology(text, tmp_path)


@pytest.mark.parametrize("text", ["nosuch.txt", "folder/nosuch", "cluster.json"])
def test_what_looks_like_a_file_and_is_none_is_said_not_to_be_there(tmp_path, text):
    with pytest.raises(InputError, match=f"there is no file {tmp_path / text}"):
        read_topology(text, tmp_path)


def test_a_number_no_cluster_has_is_no_shorthand(tmp_path):
    with pytest.raises(InputError, match="is no shorthand"):
        read_topology("9" * 5000 + "x8 H100-SXM", tmp_path)
