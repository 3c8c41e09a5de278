"""From what was discovered to nested levels, the innermost first.

A level needs domains of one size. Where they differ (GPUs 4 + 2 over two sockets) the level is left
out or, between hosts, marked uneven; the groups themselves are in the document.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshfit.cluster.catalogue import default_node_type
from meshfit.cluster.device_order import nests
from meshfit.cluster.discover.domains import Groups, equal_size, within
from meshfit.cluster.discover.facts import GpuFacts, HostFacts, PathKind, Tier
from meshfit.cluster.discover.links import LinkDomains, link_domains
from meshfit.cluster.discover.merge import Discovery
from meshfit.cluster.discover.nics import compute_nics
from meshfit.cluster.discover.pci import pcie_bytes_per_s
from meshfit.cluster.entries import AcceleratorEntry
from meshfit.cluster.shorthand import LATENCY_S
from meshfit.cluster.topology import LevelKind, Source

_PCIE_LEVELS: tuple[tuple[PathKind, str], ...] = (
    ("PIX", "pcie_switch"),
    ("PXB", "pcie_bridges"),
    ("PHB", "host_bridge"),
    ("NODE", "numa"),
)


Domains = tuple[tuple[int, ...], ...]
"""Devices of a host by their index, domain by domain."""


@dataclass(frozen=True, kw_only=True)
class FoundLevel:
    """As ``topology.Level``, where a figure may be unknown.

    ``sizes``: all that occur; ``size`` is the commonest. ``members``: what the innermost level
    counts, ``accelerators`` or ``hosts``. ``groups``: devices of a host by domain, of levels inside it.
    """

    name: str
    size: int
    sizes: tuple[int, ...]
    kind: LevelKind
    bytes_per_s: float | None
    latency_s: float
    source: Source
    oversubscription: float | None = None
    rails: bool = False
    members: str = ""
    groups: Domains = ()

    @property
    def is_even(self) -> bool:
        return len(self.sizes) == 1


@dataclass(frozen=True, kw_only=True)
class FoundLevels:
    levels: tuple[FoundLevel, ...]
    notes: tuple[str, ...]


def levels_of(found: Discovery, entry: AcceleratorEntry | None) -> FoundLevels:
    """Levels of a discovery; ``entry`` is its accelerator, where that is known."""
    notes: list[str] = []
    host = found.node
    inner = _inside_host(host, entry, notes) if host and host.gpus else ()
    outer = _between_hosts(found, entry, notes)
    if outer and outer[0].name == "link":
        inner = ()
    return FoundLevels(levels=(*inner, *outer), notes=tuple(notes))


def _inside_host(
    host: HostFacts, entry: AcceleratorEntry | None, notes: list[str]
) -> tuple[FoundLevel, ...]:
    gpus = host.gpus or ()
    if len(gpus) > 1 and not any(
        a.startswith("GPU") and b.startswith("GPU") for a, b in host.paths
    ):
        notes.append(f"no source says how the {len(gpus)} GPUs are joined")
        return ()
    levels: list[FoundLevel] = []
    covered = 1
    inside: Domains = tuple((index,) for index in range(len(gpus)))
    link = link_domains(host, entry)
    if link is not None:
        notes.extend(link.notes)
        if link.size is not None:
            inside = _indices(link.groups, gpus)
            levels.append(_link_level(link, link.size, inside))
            covered = link.size
    rate = _pcie_rate(host, entry)
    for kind, name in _PCIE_LEVELS:
        groups = within(gpus, host.paths, kind)
        size = equal_size(groups)
        if size is None and max(map(len, groups)) > 1 and kind == "NODE":
            shown = ", ".join(str(len(group)) for group in groups)
            notes.append(f"NUMA domains of {shown} GPUs: uneven, so no level of them")
        if size is None or size <= covered or size == len(gpus) or size % covered:
            continue
        around = _indices(groups, gpus)
        if not nests(inside, around):
            notes.append(f"{levels[-1].name} domains reach over {name} ones, so no level of these")
            continue
        levels.append(_bus(name, size // covered, rate, around))
        covered, inside = size, around
    if covered < len(gpus) or len(gpus) == 1:
        levels.append(_bus("host", len(gpus) // covered, rate, (tuple(range(len(gpus))),)))
    _note_numa(host, notes)
    return tuple(levels)


def _indices(groups: Groups, gpus: Sequence[GpuFacts]) -> Domains:
    index = {gpu.label: place for place, gpu in enumerate(gpus)}
    return tuple(tuple(index[label] for label in group) for group in groups)


def _note_numa(host: HostFacts, notes: list[str]) -> None:
    """Boards whose paths say SYS between GPUs of one NUMA node."""
    gpus = host.gpus or ()
    numa = {gpu.label: gpu.numa for gpu in gpus}
    across = [
        key
        for key, path in host.paths.items()
        if path.kind == "SYS" and numa.get(key[0]) is not None and numa[key[0]] == numa.get(key[1])
    ]
    if across:
        notes.append(
            f"{len(across)} pairs of GPUs are SYS though both have the same NUMA affinity, as "
            f"{across[0][0]} and {across[0][1]}; the affinity holds"
        )


def _link_level(link: LinkDomains, size: int, groups: Domains) -> FoundLevel:
    return FoundLevel(
        name="link",
        size=size,
        sizes=(size,),
        kind=link.kind,
        bytes_per_s=link.bytes_per_s,
        latency_s=LATENCY_S["link"],
        source=link.source,
        members="accelerators",
        groups=groups,
    )


def _bus(name: str, size: int, rate: float | None, groups: Domains) -> FoundLevel:
    """A level over PCIe. That its members share one slot's rate is a guess until it is measured."""
    return FoundLevel(
        name=name,
        size=size,
        sizes=(size,),
        kind="bus",
        bytes_per_s=rate,
        latency_s=LATENCY_S["pcie"],
        source="guess",
        members="accelerators",
        groups=groups,
    )


def _pcie_rate(host: HostFacts, entry: AcceleratorEntry | None) -> float | None:
    """Of the slowest GPU's slot, else what its kind is made for."""
    slots = [(gpu.pcie_generation, gpu.pcie_width) for gpu in host.gpus or ()]
    rates = [
        pcie_bytes_per_s(generation, width) for generation, width in slots if generation and width
    ]
    known = [rate for rate in rates if rate]
    if known:
        return min(known)
    return entry.spec.host_link_bytes_per_s if entry else None


def _between_hosts(
    found: Discovery, entry: AcceleratorEntry | None, notes: list[str]
) -> tuple[FoundLevel, ...]:
    """Levels of the tiers that put whole domains together, up to one that holds all hosts."""
    tiers = found.network.tiers if found.network else ()
    levels: list[FoundLevel] = []
    inside = {host: host for host in found.hosts}
    for tier in tiers:
        place = _place_of_domains(tier, inside, found.hosts, notes)
        if place is None:
            notes.append(f"{tier.name} divides the domains inside it; no level of its own")
            continue
        counts = list(Counter(place.values()).values())
        inside = {host: place[domain] for host, domain in inside.items()}
        if set(counts) <= {1} and not (tier.is_link and not levels):
            continue
        if len(set(counts)) > 1:
            notes.append(
                f"domains of {tier.name} have {min(counts)} to {max(counts)} members: uneven"
            )
        levels.append(_tier_level(tier, counts, found, entry))
    rest = len(set(inside.values()))
    if rest > 1:
        if tiers:
            notes.append(f"what joins the {rest} domains of {tiers[-1].name} is not said")
        everyone = Tier(name="cluster" if tiers else "network", domains={"all": found.hosts})
        levels.append(_tier_level(everyone, [rest], found, entry))
    return tuple(levels)


def _place_of_domains(
    tier: Tier, inside: Mapping[str, str], hosts: Sequence[str], notes: list[str]
) -> dict[str, str] | None:
    """Domain inside -> the domain of the tier that it lies in, itself where the tier names none of
    its hosts; None where one lies in several."""
    of_host = {host: name for name, members in tier.domains.items() for host in members}
    outside = [host for host in hosts if host not in of_host]
    if outside:
        notes.append(f"{len(outside)} hosts, as {outside[0]}, are in no domain of {tier.name}")
    place: dict[str, str] = {}
    for host, domain in inside.items():
        if host in of_host and place.setdefault(domain, of_host[host]) != of_host[host]:
            return None
    return {domain: place.get(domain, domain) for domain in dict.fromkeys(inside.values())}


def _tier_level(
    tier: Tier, counts: Sequence[int], found: Discovery, entry: AcceleratorEntry | None
) -> FoundLevel:
    gpus_per_host = len(found.gpus) or None
    sizes = tuple(sorted(set(counts)))
    size = max(sizes, key=lambda one: (counts.count(one), one))
    if tier.is_link:
        link = link_domains(found.node, entry) if found.node and found.node.gpus else None
        scale = gpus_per_host or 1
        rate = link.bytes_per_s if link else (entry.link_bytes_per_s or None) if entry else None
        return FoundLevel(
            name="link",
            size=size * scale,
            sizes=tuple(s * scale for s in sizes),
            kind="switch",
            bytes_per_s=rate,
            latency_s=LATENCY_S["link"],
            source="spec",
            members="accelerators" if gpus_per_host else "hosts",
        )
    rate, source = _network_rate(tier, found, entry)
    return FoundLevel(
        name=tier.name,
        size=size,
        sizes=sizes,
        kind="switch",
        bytes_per_s=rate,
        latency_s=LATENCY_S["network"],
        source=source,
        oversubscription=tier.oversubscription,
        rails=tier.rails,
        members="hosts",
    )


def _network_rate(
    tier: Tier, found: Discovery, entry: AcceleratorEntry | None
) -> tuple[float | None, Source]:
    """Per accelerator: the host's cards over its GPUs, else what such nodes usually have (a guess)."""
    nics = compute_nics(found.node) if found.node else ()
    rates = [nic.bytes_per_s or tier.bytes_per_s for nic in nics]
    if rates and found.gpus and all(rates):
        return sum(rate or 0.0 for rate in rates) / len(found.gpus), "spec"
    node = default_node_type(entry.name) if entry else None
    if node is not None and node.nic_bytes_per_s:
        return node.nic_bytes_per_s, "guess"
    return None, "guess"
