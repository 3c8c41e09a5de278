"""From files to a cluster: its accelerator, its levels, and a ``Topology`` where all is known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from meshfit.cluster.catalogue import accelerator_entry
from meshfit.cluster.device_order import device_order
from meshfit.cluster.discover.facts import GpuFacts
from meshfit.cluster.discover.formats import readings_of
from meshfit.cluster.discover.levels import FoundLevel, FoundLevels, levels_of
from meshfit.cluster.discover.merge import Discovery, fabrics_of, merge
from meshfit.cluster.discover.nics import far_card_notes
from meshfit.cluster.discover.p2p import peer_access_notes
from meshfit.cluster.discover.text import read_source
from meshfit.cluster.entries import AcceleratorEntry
from meshfit.cluster.topology import AcceleratorSpec, Level, Topology
from meshfit.errors import InputError, shown


@dataclass(frozen=True, kw_only=True)
class FoundCluster:
    """A discovery and what follows from it.

    ``accelerator_from``: what names it, ``typed`` or the source's own words; None: not known.
    ``problems``: why there is no ``Topology`` of it; empty where there is.
    """

    discovery: Discovery
    entry: AcceleratorEntry | None
    accelerator_from: str | None
    levels: tuple[FoundLevel, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    free_bytes: int | None

    @property
    def gpus_per_host(self) -> int | None:
        return len(self.discovery.gpus) or None

    @property
    def device_order(self) -> tuple[int, ...]:
        """Which device of its host each local rank takes; empty where rank i takes device i."""
        count = len(self.discovery.gpus)
        order = device_order((level.groups for level in self.levels if level.groups), count)
        return () if order == tuple(range(count)) else order

    @property
    def num_accelerators(self) -> int | None:
        """Of all hosts; None where no source says how many a host has."""
        node = self.discovery.node
        if node is None or node.gpus is None:
            return None
        return len(node.gpus) * self.discovery.num_hosts


def read_cluster(paths: Sequence[Path], accelerator: str | None = None) -> FoundCluster:
    """What files say together; ``accelerator`` names it where they do not.

    Raises:
        InputError: a file that is of no known format, broken or cut short; two networks.
    """
    readings = [reading for path in paths for reading in readings_of(read_source(path))]
    return conclude(merge(readings), accelerator)


def conclude(found: Discovery, accelerator: str | None = None) -> FoundCluster:
    """The cluster of a discovery."""
    contradictions: list[str] = []
    entry, source, notes = _accelerator(found.gpus, accelerator)
    if entry and accelerator:
        contradictions += _against_typed(found.gpus, entry)
    levels = levels_of(found, entry)
    free = [gpu.free_bytes for gpu in found.gpus if gpu.free_bytes is not None]
    return FoundCluster(
        discovery=replace(found, contradictions=(*found.contradictions, *contradictions)),
        entry=entry,
        accelerator_from=source,
        levels=levels.levels,
        notes=(
            *notes, *found.notes, *levels.notes, *peer_access_notes(found),
            *_fabric_notes(found, entry, levels), *_link_notes(found, entry),
            *(far_card_notes(found.node) if found.node else ()), *_memory_notes(found.gpus, entry),
        ),
        problems=tuple(_problems(found, entry, levels)),
        free_bytes=min(free) if len(free) == len(found.gpus) and free else None,
    )  # fmt: skip


def topology_of(cluster: FoundCluster) -> Topology:
    """The cluster as everything else takes it.

    Raises:
        InputError: a figure is missing; says which, and what would give it.
    """
    if cluster.problems:
        raise InputError(
            "these sources do not make a whole cluster: " + "; ".join(cluster.problems)
        )
    assert cluster.entry is not None
    return Topology(
        accelerator=_spec(cluster),
        levels=tuple(_level(level) for level in cluster.levels),
        gpus_per_host=cluster.gpus_per_host or 1,
        hosts=cluster.discovery.hosts,
        device_order=cluster.device_order,
    )


def _spec(cluster: FoundCluster) -> AcceleratorSpec:
    """The catalogue's figures; memory is what the driver reports, where a source says."""
    assert cluster.entry is not None
    memory = [gpu.memory_bytes for gpu in cluster.discovery.gpus if gpu.memory_bytes]
    spec = cluster.entry.spec
    return replace(spec, memory_bytes=min(memory)) if memory else spec


def _level(level: FoundLevel) -> Level:
    assert level.bytes_per_s is not None
    return Level(
        name=level.name,
        size=level.size,
        kind=level.kind,
        bandwidth_bytes_per_s=level.bytes_per_s,
        latency_s=level.latency_s,
        oversubscription=level.oversubscription or 1.0,
        rails=level.rails,
        source=level.source,
    )


def _accelerator(
    gpus: Sequence[GpuFacts], typed: str | None
) -> tuple[AcceleratorEntry | None, str | None, list[str]]:
    if typed is not None:
        return accelerator_entry(typed), "typed", []
    names = list(dict.fromkeys(gpu.name for gpu in gpus if gpu.name))
    if not names:
        return None, None, ["no source names the accelerator; --accelerator does"] if gpus else []
    if len(names) > 1:
        return None, None, [f"GPUs of several kinds: {', '.join(names)}"]
    try:
        return accelerator_entry(names[0]), names[0], []
    except InputError as error:
        return None, None, [str(error)]


def _against_typed(gpus: Sequence[GpuFacts], entry: AcceleratorEntry) -> list[str]:
    """What sources call the accelerator, where that is not the typed one."""
    others = []
    for name in dict.fromkeys(gpu.name for gpu in gpus if gpu.name):
        try:
            is_same = accelerator_entry(name).name == entry.name
        except InputError:
            is_same = False
        if not is_same:
            others.append(f"--accelerator says {entry.name}, the sources {name}")
    return others


def _problems(found: Discovery, entry: AcceleratorEntry | None, levels: FoundLevels) -> list[str]:
    problems = []
    if not found.gpus:
        problems.append("no source says how many GPUs a host has")
    elif not levels.levels:
        problems.append("no source says how the GPUs are joined")
    if entry is None:
        problems.append("the accelerator is not known (--accelerator NAME)")
    for level in levels.levels:
        if not level.is_even:
            found_sizes = f"{level.sizes[0]} to {level.sizes[-1]}"
            problems.append(f"level {level.name} is uneven ({found_sizes} members)")
        elif level.bytes_per_s is None:
            problems.append(f"bandwidth of {level.name} is not known")
    return problems


def _fabric_notes(
    found: Discovery, entry: AcceleratorEntry | None, levels: FoundLevels
) -> list[str]:
    """What is known of an NVLink domain larger than what is visible, and whether it is up."""
    if found.node is None:
        return []
    fabrics = fabrics_of(found.node)
    notes = [
        f"NVLink fabric: state {state}, status {status}: not ready to be used"
        for state, status in dict.fromkeys((f.state, f.status) for f in fabrics)
        if state not in (None, "Completed", "Not Supported") or status not in (None, "Success")
    ]
    if any(f.state == "Completed" and f.status == "Success" and f.domain is None for f in fabrics):
        notes.append("the NVLink fabric is up and names no cluster: it does not go beyond the host")
    domains = {fabric.domain for fabric in fabrics if fabric.domain}
    if len(domains) > 1:
        notes.append(
            f"GPUs of one host are in {len(domains)} NVLink domains: {', '.join(sorted(domains))}"
        )
    reaches_out = bool(domains) or any(gpu.gpu_numa_id is not None for gpu in found.gpus)
    if reaches_out and found.num_hosts == 1 and levels.levels:
        where = f" ({sorted(domains)[0]})" if domains else ""
        most = " of 72" if entry and entry.name in ("GB200", "GB300") else ""
        notes.append(
            f"{len(found.gpus) or 'its GPUs'}{most} visible: the NVLink domain{where} goes beyond this "
            f"host; give the other hosts' fabric blocks or a file of the network"
        )
    return notes


def _link_notes(found: Discovery, entry: AcceleratorEntry | None) -> list[str]:
    """Links that the accelerator is made for and the sources do not show."""
    if entry is None or found.node is None or not entry.link_bytes_per_s:
        return []
    notes = []
    for gpu in found.gpus:
        rate = sum(gpu.links_bytes_per_s or ())
        if gpu.links_bytes_per_s and rate < 0.95 * entry.link_bytes_per_s:
            notes.append(
                f"{gpu.label}: {len(gpu.links_bytes_per_s)} links of together {rate / 1e9:g} GB/s, but "
                f"{entry.name} has {entry.link_bytes_per_s / 1e9:g}: links are down, or the file is cut"
            )
    if len(found.gpus) > 1 and not any(path.is_link for path in found.node.paths.values()):
        notes.append(
            f"{entry.name} can have {entry.link_kind}; no source shows which GPUs it joins"
        )
    return notes


def _memory_notes(gpus: Sequence[GpuFacts], entry: AcceleratorEntry | None) -> list[str]:
    sizes = sorted({gpu.memory_bytes for gpu in gpus if gpu.memory_bytes})
    notes = []
    if len(sizes) > 1:
        notes.append(f"GPUs report {sizes[0] >> 20} to {sizes[-1] >> 20} MiB; the least counts")
    if entry and sizes and abs(sizes[0] / entry.spec.memory_bytes - 1) > 0.1:
        notes.append(
            f"{sizes[0] >> 20} MiB reported, but {shown(entry.name)} of the catalogue has "
            f"{entry.spec.memory_bytes >> 20}"
        )
    if any(gpu.mig for gpu in gpus):
        notes.append(
            "MIG is on: its slices are no peers of each other; memory is that of the whole GPU"
        )
    return notes
