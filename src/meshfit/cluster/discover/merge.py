"""What several sources say together. Where two disagree, the first holds and both are shown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from meshfit.cluster.catalogue import accelerator_entry
from meshfit.cluster.discover.facts import (
    GpuFacts,
    HostFacts,
    NetworkFacts,
    NicFacts,
    Path,
    Reading,
    Tier,
    pair,
)
from meshfit.errors import InputError

_ORDER = ("nvidia-smi topo -m", "rocm-smi --showtopo", "amd-smi topology", "NCCL topology XML")
"""Formats with paths go first, so that others add to the devices that they name."""
_MEMORY_TOLERANCE = 0.01
"""Tools report total memory with and without what the driver keeps."""


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """A cluster as its sources say it is.

    Attributes:
        node: one host, what all have in common; None where no source is about a host.
        hosts: names in the order of the sources; empty where none has a name.
        network: tiers between hosts; None where no source says.
        contradictions: what two sources say differently, one line each.
        notes: what sources leave open.
    """

    readings: tuple[Reading, ...]
    node: HostFacts | None
    hosts: tuple[str, ...]
    network: NetworkFacts | None
    contradictions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def num_hosts(self) -> int:
        return max(1, len(self.hosts))

    @property
    def gpus(self) -> tuple[GpuFacts, ...]:
        return (self.node.gpus or ()) if self.node else ()


@dataclass(frozen=True)
class _Said:
    """Facts of a host and who says them."""

    by: str
    facts: HostFacts


def merge(readings: Sequence[Reading]) -> Discovery:
    """One discovery from what all sources say.

    Raises:
        InputError: sources of one host name different numbers of GPUs, or there are two networks.
    """
    contradictions: list[str] = []
    ordered = sorted(readings, key=_rank)
    said = [_Said(_short(reading), facts) for reading in ordered for facts in reading.hosts]
    names = tuple(dict.fromkeys(one.facts.host for one in said if one.facts.host))
    network = _network(ordered)
    hosts = [
        _merged([s for s in said if s.facts.host in (None, name)], contradictions) for name in names
    ]
    if not names and said:
        hosts = [_merged(said, contradictions)]
    tiers = _clique_tiers(hosts)
    if tiers and network is None:
        network = NetworkFacts(hosts=names, tiers=tiers)
    elif tiers and network is not None and not any(tier.is_link for tier in network.tiers):
        network = replace(network, tiers=(*tiers, *network.tiers))
    everyone = network.hosts if network else names
    unknown = [name for name in names if name not in everyone]
    if unknown:
        contradictions.append(
            f"{unknown[0]} is a host, but not one of the network's {len(everyone)}"
        )
    return Discovery(
        readings=tuple(readings),
        node=_common(hosts, contradictions) if hosts else None,
        hosts=everyone,
        network=network,
        contradictions=tuple(dict.fromkeys(contradictions)),
        notes=tuple(dict.fromkeys(note for reading in readings for note in reading.notes)),
    )


def _rank(reading: Reading) -> int:
    return _ORDER.index(reading.format) if reading.format in _ORDER else len(_ORDER)


def _short(reading: Reading) -> str:
    return f"{reading.source.rpartition('/')[2]} ({reading.format})"


def _network(readings: Sequence[Reading]) -> NetworkFacts | None:
    networks = [reading for reading in readings if reading.network is not None]
    if len(networks) > 1:
        raise InputError(
            f"{networks[0].source} and {networks[1].source} are both about the network; give one"
        )
    return networks[0].network if networks else None


def _clique_tiers(hosts: Sequence[HostFacts]) -> tuple[Tier, ...]:
    """NVLink domains of hosts that say their cluster UUID and clique."""
    domains: dict[str, tuple[str, ...]] = {}
    for host in hosts:
        found = {f.domain for f in fabrics_of(host) if f.domain}
        for domain in found:
            if host.host:
                domains[domain] = (*domains.get(domain, ()), host.host)
    return (Tier(name="nvlink", domains=domains, is_link=True),) if domains else ()


def fabrics_of(host: HostFacts) -> list[Any]:
    """Fabric facts of a host, of its GPUs and of none in particular."""
    return [*host.fabrics, *(gpu.fabric for gpu in host.gpus or () if gpu.fabric)]


def _common(hosts: Sequence[HostFacts], contradictions: list[str]) -> HostFacts:
    """The first host; that others differ in their GPUs is a contradiction to one kind of host."""
    first = hosts[0]
    counted = [host for host in hosts if host.gpus is not None]
    contradictions.extend(
        f"{host.host} has {len(host.gpus or ())} GPUs, {counted[0].host} "
        f"{len(counted[0].gpus or ())}; hosts of one cluster must be equal"
        for host in counted
        if len(host.gpus or ()) != len(counted[0].gpus or ())
    )
    return first


def _merged(said: Sequence[_Said], contradictions: list[str]) -> HostFacts:
    merged = said[0]
    for other in said[1:]:
        merged = _Said(merged.by, _joined(merged, other, contradictions))
    return merged.facts


def _joined(first: _Said, second: _Said, contradictions: list[str]) -> HostFacts:
    a, b = first.facts, _relabelled(first.facts, second.facts)
    by = (first.by, second.by)
    return HostFacts(
        host=a.host or b.host,
        gpus=_gpus(a.gpus, b.gpus, by, contradictions),
        nics=_nics(a.nics, b.nics, by, contradictions),
        paths=_paths(a.paths, b.paths, by, contradictions),
        peer_access={**b.peer_access, **a.peer_access},
        numa_nodes=a.numa_nodes if a.numa_nodes is not None else b.numa_nodes,
        cpus={**b.cpus, **a.cpus},
        fabrics=(*a.fabrics, *b.fabrics),
        has_switch=a.has_switch if a.has_switch is not None else b.has_switch,
    )


def _relabelled(a: HostFacts, b: HostFacts) -> HostFacts:
    """``b`` with the labels that ``a`` gives to the same PCI bus ids, where both have them all."""
    ours = {gpu.bus_id: gpu.label for gpu in a.gpus or ()}
    theirs = {gpu.label: gpu.bus_id for gpu in b.gpus or ()}
    if None in ours or not theirs or set(theirs.values()) != set(ours):
        return b
    new = {label: ours[bus_id] for label, bus_id in theirs.items()}

    def renamed(pairs: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
        return {pair(new.get(x, x), new.get(y, y)): value for (x, y), value in pairs.items()}

    gpus = sorted((replace(g, label=new[g.label]) for g in b.gpus or ()), key=_index)
    return replace(b, gpus=tuple(gpus), paths=renamed(b.paths), peer_access=renamed(b.peer_access))


def _index(gpu: GpuFacts) -> int:
    return int(gpu.label.removeprefix("GPU"))


def _gpus(
    a: tuple[GpuFacts, ...] | None,
    b: tuple[GpuFacts, ...] | None,
    by: tuple[str, str],
    contradictions: list[str],
) -> tuple[GpuFacts, ...] | None:
    """GPUs by label. A source may be about some of them; more than the other knows is contradicted."""
    if a is None or b is None:
        return a if b is None else b
    if len(a) != len(b):
        contradictions.append(f"{by[0]} has {len(a)} GPUs, {by[1]} {len(b)}")
    ours = {gpu.label: gpu for gpu in a}
    for gpu in b:
        known = ours.get(gpu.label)
        ours[gpu.label] = gpu if known is None else _gpu(known, gpu, by, contradictions)
    return tuple(sorted(ours.values(), key=_index))


def _gpu(a: GpuFacts, b: GpuFacts, by: tuple[str, str], contradictions: list[str]) -> GpuFacts:
    values: dict[str, Any] = {}
    for field in fields(GpuFacts):
        ours, theirs = getattr(a, field.name), getattr(b, field.name)
        values[field.name] = theirs if ours is None else ours
        if ours is None or theirs is None or _agree(field.name, ours, theirs):
            continue
        contradictions.append(
            f"{a.label} {field.name}: {by[0]} says {_told(ours)}, {by[1]} {_told(theirs)}"
        )
    return GpuFacts(**values)


def _told(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _agree(name: str, ours: Any, theirs: Any) -> bool:
    if name == "name":
        return _spelt(ours) == _spelt(theirs)
    if name in ("memory_bytes", "free_bytes"):
        return bool(abs(ours - theirs) <= _MEMORY_TOLERANCE * max(ours, theirs))
    return bool(ours == theirs)


def _spelt(name: str) -> str:
    """The catalogue's name, so that spellings of one accelerator agree."""
    try:
        return accelerator_entry(name).name
    except InputError:
        return name.lower()


def _nics(
    a: tuple[NicFacts, ...] | None,
    b: tuple[NicFacts, ...] | None,
    by: tuple[str, str],
    contradictions: list[str],
) -> tuple[NicFacts, ...] | None:
    """Cards by name. Sources that share no name are about the same ones, if as many."""
    if not a or not b:
        return b or a
    theirs = {nic.shown_name: nic for nic in b}
    if len(a) != len(b):
        contradictions.append(f"{by[0]} has {len(a)} network cards, {by[1]} {len(b)}")
    return tuple(_nic(nic, theirs.get(nic.shown_name), by, contradictions) for nic in a)


def _nic(
    a: NicFacts, b: NicFacts | None, by: tuple[str, str], contradictions: list[str]
) -> NicFacts:
    if b is None:
        return a
    if a.numa is not None and b.numa is not None and a.numa != b.numa:
        contradictions.append(f"{a.shown_name} NUMA node: {by[0]} says {a.numa}, {by[1]} {b.numa}")
    return replace(
        a,
        bus_id=a.bus_id or b.bus_id,
        numa=b.numa if a.numa is None else a.numa,
        bytes_per_s=a.bytes_per_s or b.bytes_per_s,
    )


def _paths(
    a: Mapping[tuple[str, str], Path],
    b: Mapping[tuple[str, str], Path],
    by: tuple[str, str],
    contradictions: list[str],
) -> dict[tuple[str, str], Path]:
    """Paths of both. A link is the nearer way beside any path over PCIe, which ``topo -mp`` and PCI
    trees tell; PHB and NODE are one where a tree has no host bridges."""
    merged = dict(a)
    knows_cards = not all(map(_is_of_gpus, a))
    shown: set[str] = set()
    for key, theirs in b.items():
        if knows_cards and not _is_of_gpus(key):  # labels of cards differ between sources
            continue
        ours = merged.setdefault(key, theirs)
        if theirs.is_link and not ours.is_link:
            merged[key] = theirs
        if ours.is_link != theirs.is_link or ours == theirs:
            continue
        if {ours.kind, theirs.kind} == {"PHB", "NODE"}:
            continue
        text = f"{ours} by {by[0]}, {theirs} by {by[1]}"
        if text not in shown:
            shown.add(text)
            contradictions.append(f"path of {key[0]} and {key[1]}: {text}")
    return merged


def _is_of_gpus(key: Iterable[str]) -> bool:
    return all(label.startswith("GPU") for label in key)
