from pathlib import Path

import pytest

from meshfit.cluster import lab as module
from meshfit.cluster.files import read_topology
from meshfit.cluster.lab import PAYLOAD_FRACTION, lab_topology, read_lab_block
from meshfit.cluster.topology import LabSpec
from meshfit.errors import InputError

ASKED = {"hosts": 2, "ranks_per_host": 2, "between": "200Mbit"}


def lab(**changes: object) -> LabSpec:
    return read_lab_block({"lab": ASKED | changes}, "lab")


@pytest.mark.parametrize("between", ["200Mbit", "200 Mb/s", "0.2 Gbit/s", "25 MB/s", "25000kB/s"])
def test_a_rate_is_written_as_tc_or_as_meshfit_writes_it(between: str) -> None:
    assert lab(between=between).between_bytes_per_s == pytest.approx(25e6)


def test_hosts_are_a_count_or_names() -> None:
    assert lab(hosts=2).hosts == ("host0", "host1")
    assert lab(hosts=11).hosts[::5] == ("host00", "host05", "host10")
    assert lab(hosts=["b", "a"]).hosts == ("b", "a")
    assert lab(hosts="node[1-3]").hosts == ("node1", "node2", "node3")


def test_counted_hosts_are_in_the_order_of_their_names_as_text() -> None:
    for count in (2, 10, 11, 64):
        hosts = lab(hosts=count).hosts
        assert list(hosts) == sorted(hosts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hosts": 1}, "a lab of 1 hosts; write 2 to 64"),
        ({"hosts": 1000}, "write 2 to 64"),
        ({"hosts": ["a", "A_b"]}, "is no host name"),
        ({"hosts": ["a", "A b"]}, "is not a host list"),
        ({"hosts": ["a", "localhost"]}, "is no host name"),
        ({"hosts": ["a", "-b"]}, "is no host name"),
        ({"between": "0 Mb/s"}, "must be greater than 0"),
        ({"between": "fast"}, "is not a bandwidth"),
        ({"latency": "-1 ms"}, "is not a duration"),
        ({"ranks_per_host": 0}, "ranks_per_host: 0 is not allowed"),
        ({"rate": 3}, "unknown key 'lab.rate'"),
    ],
)
def test_what_cannot_be_made_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lab(**changes)


def test_a_lab_is_two_levels_and_ranks_of_a_host_share_its_link() -> None:
    topology = lab_topology(lab(hosts=3))
    assert [(level.name, level.size) for level in topology.levels] == [("host", 2), ("between", 3)]
    assert topology.levels[1].bandwidth_bytes_per_s == 25e6 * PAYLOAD_FRACTION / 2
    assert topology.levels[1].bandwidth_bytes_per_s < topology.levels[0].bandwidth_bytes_per_s
    assert [topology.host_of(rank) for rank in range(6)] == [
        *("host0", "host0", "host1", "host1", "host2", "host2"),
    ]
    assert topology.is_here
    assert topology.accelerator.device_type == "cpu"


def test_latency_is_added_to_that_of_the_link() -> None:
    slow, fast = lab_topology(lab(latency="2 ms")), lab_topology(lab())
    assert slow.levels[1].latency_s - fast.levels[1].latency_s == pytest.approx(2e-3)


def test_a_job_describes_its_lab_or_takes_the_one_that_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = read_topology({"lab": ASKED}, tmp_path)
    up_file = tmp_path / "lab.yaml"
    monkeypatch.setattr(module, "UP_FILE", up_file)
    with pytest.raises(InputError, match="no lab is up on this machine; `meshfit lab up"):
        read_topology("lab", tmp_path)
    up_file.write_text("lab: {hosts: 2, ranks_per_host: 2, between: 200Mbit}")
    assert read_topology("lab", tmp_path).lab == described.lab
    assert read_topology("lab.yaml", tmp_path).lab == described.lab
