from dataclasses import replace

import pytest

from meshfit.cluster.topology import Level
from meshfit.compare.fabric import broken_links
from meshfit.record.probe import GroupRate, LinkRate, ProbeRecord

LEVELS = (
    Level(name="node", size=4, kind="switch", bandwidth_bytes_per_s=450e9, latency_s=3e-6),
    Level(name="network", size=2, kind="switch", bandwidth_bytes_per_s=50e9, latency_s=14e-6),
)


def link(first, second, rate, level="node"):
    return LinkRate(first_rank=first, second_rank=second, level=level, bytes_per_s=rate)


def record(links=(), groups=()):
    return ProbeRecord(
        measured_at="2026-01-01T00:00:00+00:00", source="test", accelerator="H100-SXM5-80",
        library="nccl", level_names=("node", "network"), level_sizes=(4, 2), gpus_per_host=4,
        hosts=("n1",) * 4 + ("n2",) * 4, curves=(), links=tuple(links), groups=tuple(groups),
    )  # fmt: skip


NODE = [(a, b) for a in range(4) for b in range(a + 1, 4)]


def test_equal_links_near_their_rate_are_whole():
    links = [link(a, b, 300e9 + a * 1e9) for a, b in NODE]
    assert broken_links(record([*links, link(0, 4, 40e9, "network")]), LEVELS) == []


def test_one_slow_link_is_named_by_both_ends():
    links = [link(a, b, 25e9 if (a, b) == (1, 3) else 300e9) for a, b in NODE]
    (said,) = broken_links(record(links), LEVELS)
    assert "rank 1 on n1 to rank 3 on n1" in said
    assert "25.0 GB/s" in said


def test_one_slow_rank_is_named_once():
    links = [link(a, b, 25e9 if 2 in (a, b) else 300e9) for a, b in NODE]
    (said,) = broken_links(record(links), LEVELS)
    assert "every slow link ends at rank 2 on n1" in said


@pytest.mark.parametrize(
    ("level", "rate", "said"),
    [("node", 50e9, "NVLink or xGMI is not used"), ("network", 3e9, "sockets in place of RDMA")],
)
def test_a_whole_level_far_below_its_rate_is_named(level, rate, said):
    assert said in broken_links(record([link(0, 1, rate, level)]), LEVELS)[0]


def test_a_rate_that_is_a_guess_refutes_nothing():
    guessed = [replace(level, source="guess") for level in LEVELS]
    assert broken_links(record([link(0, 1, 1e9)]), guessed) == []


def test_one_slow_group_among_equal_ones_is_named():
    groups = [
        GroupRate(ranks=(rank, rank + 4), members=(1, 2), seconds=0.03 if rank == 3 else 0.01)
        for rank in range(4)
    ]
    (said,) = broken_links(record(groups=groups), LEVELS)
    assert "ranks 3, 7 take 3.0 times as long" in said
