"""Links and groups that are far slower than they should be: nothing can be ranked on those."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from meshfit.cluster.topology import Level
from meshfit.record.probe import ProbeRecord
from meshfit.units import format_bandwidth

FAR_BELOW_OTHERS = 0.4
"""A link below this share of the median of its level is broken; equal links differ by few per cent
on a device, and by up to two on busy cores."""
FAR_BELOW_RATE = 0.2
"""All links of a level below this share of its rate: another path is used. PCIe 5 has a seventh of
NVLink 4's rate, sockets reach a tenth of RDMA's."""
BELOW_OTHERS = 0.75
"""A pair of hosts below this share of the median is uneven: nothing is broken, but it is the one that
others wait for."""
FILLS_CARD = 0.7
"""One stream over TCP fills this much of an idle card at least."""
MOST_NAMED = 4
FAR_ABOVE_OTHERS = 2.5
"""A group that takes so many times the median of equal groups holds something slow."""


def broken_links(record: ProbeRecord, levels: Sequence[Level]) -> list[str]:
    """What is wrong with the fabric, one sentence each; empty where nothing is."""
    rates = _by_level(record)
    return [
        *_slow_links(record, rates),
        *_slow_levels(rates, {level.name: level for level in levels}, record.cards or {}),
        *_slow_groups(record),
    ]


def uneven_hosts(record: ProbeRecord) -> list[str]:
    """Pairs of hosts that are clearly slower than most, the slowest first: a job over all of them is
    as fast as its slowest pair. Each way counts for itself; a pair's rate is that of its best link."""
    rates: dict[tuple[str, str], float] = {}
    for link in record.links:
        if max(link.first_rank, link.second_rank) < len(record.hosts):
            way = record.hosts[link.first_rank], record.hosts[link.second_rank]
            rates[way] = max(link.bytes_per_s, rates.get(way, 0.0))
    rates = {way: rate for way, rate in rates.items() if way[0] != way[1]}
    if not rates:
        return []
    usual = statistics.median_high(rates.values())
    slow = sorted((rate, way) for way, rate in rates.items() if rate < BELOW_OTHERS * usual)
    return [
        f"{a} sends {b} {format_bandwidth(rate)} where most hosts send {format_bandwidth(usual)}: "
        f"a job over both runs at that rate"
        for rate, (a, b) in slow[:MOST_NAMED]
    ]


def _by_level(record: ProbeRecord) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = defaultdict(list)
    for link in record.links:
        rates[link.level].append(link.bytes_per_s)
    return rates


def _slow_links(record: ProbeRecord, rates: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Single links; a rank that all slow links share is named."""
    for level, every in rates.items():
        usual = statistics.median(every)
        slow = [
            link
            for link in record.links
            if link.level == level and link.bytes_per_s < FAR_BELOW_OTHERS * usual
        ]
        if not slow:
            continue
        ends = [{link.first_rank, link.second_rank} for link in slow]
        shared = set.intersection(*ends) if len(ends) > 1 else set()
        worst = min(link.bytes_per_s for link in slow)
        where = (
            f"every slow link ends at {_rank(shared.pop(), record)}"
            if len(shared) == 1
            else ", ".join(
                f"{_rank(link.first_rank, record)} to {_rank(link.second_rank, record)}"
                for link in slow[:MOST_NAMED]
            )
        )
        yield (
            f"{level}: {len(slow)} of {len(every)} links reach {format_bandwidth(worst)} where "
            f"others reach {format_bandwidth(usual)}: {where}"
        )


def _slow_levels(
    rates: Mapping[str, Sequence[float]], levels: Mapping[str, Level], cards: Mapping[str, float]
) -> Iterator[str]:
    """Whole levels against the rate that they are known for."""
    for name, every in rates.items():
        level, best = levels.get(name), max(every)
        if level is None or level.source not in ("spec", "typed"):
            continue
        if best < FAR_BELOW_RATE * level.bandwidth_bytes_per_s:
            yield (
                f"{name}: its best link reaches {format_bandwidth(best)} of "
                f"{format_bandwidth(level.bandwidth_bytes_per_s)}: "
                f"{_card_in_use(best, cards) or _suspect(level)}"
            )


def _card_in_use(rate: float, cards: Mapping[str, float]) -> str | None:
    """The card that carries just this rate, where the host has a faster one as well."""
    fastest = max(cards.values(), default=0.0)
    for name, carries in cards.items():
        if carries < fastest and FILLS_CARD * carries < rate <= carries:
            return (
                f"that is what {name} carries ({format_bandwidth(carries)}), not the fastest card; "
                f"the route decides, not only NCCL_SOCKET_IFNAME (ip route get ADDRESS)"
            )
    return None


def _suspect(level: Level) -> str:
    if level.name in ("link", "node") or level.bandwidth_bytes_per_s > 100e9:
        return "NVLink or xGMI is not used (nvidia-smi topo -m, nvidia-smi nvlink -s)"
    return "sockets in place of RDMA, or fewer network cards than planned (NCCL_DEBUG=INFO)"


def _slow_groups(record: ProbeRecord) -> Iterator[str]:
    """Groups that ran at once."""
    by_shape: dict[tuple[int, ...], list[tuple[float, tuple[int, ...]]]] = defaultdict(list)
    for group in record.groups:
        by_shape[group.members].append((group.seconds, group.ranks))
    for every in by_shape.values():
        usual = statistics.median(seconds for seconds, _ in every)
        for seconds, ranks in every:
            if len(every) > 2 and seconds > FAR_ABOVE_OTHERS * usual:
                yield (
                    f"ranks {', '.join(map(str, ranks))} take {seconds / usual:.1f} times as long "
                    f"as other groups of their shape"
                )


def _rank(rank: int, record: ProbeRecord) -> str:
    host = f" on {record.hosts[rank]}" if rank < len(record.hosts) else ""
    return f"rank {rank}{host}"
