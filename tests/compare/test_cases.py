"""Fabrics that people in the field found broken or uneven, with the figures they report."""

from itertools import permutations

from meshfit.cluster.topology import Level
from meshfit.compare.fabric import broken_links, uneven_hosts
from meshfit.record.probe import LinkRate, ProbeRecord


def between_hosts(rates, cards=None) -> ProbeRecord:
    """What a probe of hosts of one rank found; ``rates``: bytes per second by (sender, receiver)."""
    hosts = tuple(f"node{rank + 1}" for rank in range(1 + max(map(max, rates))))
    return ProbeRecord(
        measured_at="2026-01-01T00:00:00+00:00", source="test", accelerator="A100-SXM4-80",
        library="nccl", level_names=("node", "network"), level_sizes=(1, len(hosts)),
        gpus_per_host=1, hosts=hosts, curves=(), cards=cards,
        links=tuple(
            LinkRate(first_rank=a, second_rank=b, level="network", bytes_per_s=rate)
            for (a, b), rate in rates.items()
        ),
    )  # fmt: skip


def network(rate: float) -> list[Level]:
    return [
        Level(name="network", size=2, kind="switch", bandwidth_bytes_per_s=rate, latency_s=5e-5)
    ]


CARDS = {"eno1": 1e9 / 8, "enp65s0": 10e9 / 8}


def test_g03_the_rate_between_two_nodes_tells_that_the_slow_card_is_used():
    """NVIDIA/nccl#1580: 0.11 GB/s over the 1 Gb card, 1.2 GB/s over the 10 Gb one."""
    both_ways = [(0, 1), (1, 0)]
    slow = between_hosts(dict.fromkeys(both_ways, 0.11e9), CARDS)
    (said,) = broken_links(slow, network(CARDS["enp65s0"]))
    assert "its best link reaches 110 MB/s of 1.25 GB/s" in said
    assert "that is what eno1 carries" in said
    assert "ip route get" in said
    mended = between_hosts(dict.fromkeys(both_ways, 1.2e9), CARDS)
    assert broken_links(mended, network(CARDS["enp65s0"])) == []


def test_g03_one_way_alone_is_seen_as_well():
    one_way = between_hosts({(0, 1): 1.2e9, (1, 0): 0.11e9}, CARDS)
    assert uneven_hosts(one_way)[0].startswith("node2 sends node1 110 MB/s")


def test_g05_the_slowest_pair_of_hosts_is_named_as_what_a_job_runs_at():
    """NVIDIA/nccl-tests#106: 80 GB/s between some pairs, 40 between others."""
    rates = dict.fromkeys(permutations(range(4), 2), 80e9) | {(1, 3): 40e9, (3, 1): 40e9}
    found = between_hosts(rates)
    assert uneven_hosts(found) == [
        f"{a} sends {b} 40.0 GB/s where most hosts send 80.0 GB/s: a job over both runs at that rate"
        for a, b in (("node2", "node4"), ("node4", "node2"))
    ]
    assert broken_links(found, network(100e9)) == []


def test_hosts_that_are_nearly_equal_are_even():
    rates = {way: 80e9 - index * 1e9 for index, way in enumerate(permutations(range(4), 2))}
    assert uneven_hosts(between_hosts(rates)) == []
