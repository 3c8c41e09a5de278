"""What is drawn: boxes in boxes, the outermost level first, accelerators innermost.

Equal domains beyond the first few are counted, not drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from meshfit.cluster.discover.conclude import FoundCluster
from meshfit.cluster.discover.cpu_list import shown_list
from meshfit.cluster.discover.document import memory_text
from meshfit.cluster.discover.domains import linked, numa_groups, switch_groups
from meshfit.cluster.discover.facts import HostFacts, pair
from meshfit.cluster.discover.levels import FoundLevel
from meshfit.cluster.topology import Topology
from meshfit.report.draw.ranks import Axis, RankColours
from meshfit.units import format_bandwidth, format_bytes, format_duration

BoxKind = Literal["level", "host", "numa", "switch", "gpu", "nic", "storage", "more"]

_SHOWN_DOMAINS = 2
_SHOWN_HOSTS = 18
"""Trays of an NVL72 rack are drawn; of larger domains the first ones."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """``joins``: what connects the boxes inside, drawn as a bar. ``colours``: one an axis."""

    kind: BoxKind
    title: str
    joins: str | None = None
    rails: int = 0
    traffic: str | None = None
    children: tuple["Box", ...] = ()
    colours: tuple[int, ...] = ()
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Scene:
    title: str
    root: Box
    axes: tuple[Axis, ...] = ()
    notes: tuple[str, ...] = field(default=())


def scene_of_topology(
    topology: Topology, axes: Sequence[Axis] = (), notes: Sequence[str] = ()
) -> Scene:
    """The scene of a topology that is known by its levels; ``axes`` of a layout on it."""
    levels = tuple(
        FoundLevel(
            name=level.name,
            size=level.size,
            sizes=(level.size,),
            kind=level.kind,
            bytes_per_s=level.bandwidth_bytes_per_s,
            latency_s=level.latency_s,
            source=level.source,
            oversubscription=level.oversubscription,
            rails=level.rails,
        )
        for level in topology.levels
    )
    view = _View(
        levels=levels,
        accelerator=topology.accelerator.name,
        gpus_per_host=topology.gpus_per_host,
        hosts=tuple(
            topology.host_of(i * topology.gpus_per_host) for i in range(topology.num_hosts)
        ),
        host_memory_bytes=topology.host_memory_bytes,
        colours=RankColours(axes),
        traffic=_traffic(axes),
    )
    root = _domain(view, len(levels) - 1, 0)
    if topology.storage_write_bytes_per_s is not None:
        root = _with_storage(root, topology.storage_write_bytes_per_s)
    hosts = topology.num_hosts
    title = (
        f"{topology.num_accelerators} x {topology.accelerator.name} on {hosts} "
        f"host{'s' if hosts > 1 else ''}"
    )
    return Scene(title=title, root=root, axes=tuple(axes), notes=tuple(notes))


def scene_of_discovery(cluster: FoundCluster, axes: Sequence[Axis] = ()) -> Scene:
    """The scene of what files say: one host in detail, inside the tiers between hosts."""
    found = cluster.discovery
    name = cluster.entry.name if cluster.entry else "accelerator"
    node = found.node or HostFacts()
    view = _View(
        levels=tuple(level for level in cluster.levels if _is_between_hosts(level, cluster)),
        accelerator=name,
        gpus_per_host=1,
        hosts=found.hosts or ("host",),
        host_memory_bytes=None,
        colours=RankColours(axes),
        traffic=_traffic(axes),
        node=node,
        inner=tuple(level for level in cluster.levels if not _is_between_hosts(level, cluster)),
    )
    root = _domain(view, len(view.levels) - 1, 0)
    count = cluster.num_accelerators
    hosts = found.num_hosts
    what = f"{count} x {name}" if count is not None else "accelerators not known"
    memory = memory_text(cluster)
    return Scene(
        title=f"{what} on {hosts} host{'s' if hosts > 1 else ''}"
        + (f", {memory}" if memory else ""),
        root=root,
        axes=tuple(axes),
        notes=(*(f"contradiction: {c}" for c in found.contradictions), *cluster.notes),
    )


@dataclass(frozen=True, kw_only=True)
class _View:
    """What the boxes are made from. With ``node``, the levels count hosts, which look like it."""

    levels: tuple[FoundLevel, ...]
    accelerator: str
    gpus_per_host: int
    hosts: tuple[str, ...]
    host_memory_bytes: int | None
    colours: RankColours
    traffic: Mapping[str, str]
    node: HostFacts | None = None
    inner: tuple[FoundLevel, ...] = ()

    def span(self, index: int) -> int:
        """Accelerators (hosts, with ``node``) in a domain of a level."""
        size = 1
        for level in self.levels[: index + 1]:
            size *= self.level_size(level)
        return size

    def level_size(self, level: FoundLevel) -> int:
        per_host = len(self.node.gpus or ()) if self.node else 0
        counts_gpus = level.members == "accelerators" and level.name == "link" and per_host
        return level.size // per_host if counts_gpus else level.size


def level_text(level: FoundLevel) -> str:
    """Kind, rate, latency and what thins it out, in one line."""
    rate = "rate not known" if level.bytes_per_s is None else format_bandwidth(level.bytes_per_s)
    per = {"switch": "per accelerator", "mesh": "per pair", "bus": "shared", "torus": "per link"}
    parts = [f"{level.name}: {level.kind}", f"{rate} {per[level.kind]} ({level.source})"]
    if level.bytes_per_s is None:
        parts = [f"{level.name}: {level.kind}", rate]
    parts.append(format_duration(level.latency_s))
    if level.oversubscription and level.oversubscription > 1:
        parts.append(f"{level.oversubscription:.3g}:1 oversubscribed")
    if level.rails:
        parts.append("rails")
    return ", ".join(parts)


def _is_between_hosts(level: FoundLevel, cluster: FoundCluster) -> bool:
    if level.members == "hosts":
        return True
    return level.name == "link" and level.size > (cluster.gpus_per_host or level.size)


def _traffic(axes: Sequence[Axis]) -> dict[str, str]:
    """Level -> what each axis whose groups reach out to it sends, per rank and step."""
    by_level: dict[str, list[str]] = {}
    for axis in axes:
        amount = "" if axis.bytes_per_step is None else f" {axis.bytes_per_step / 1e9:.3g} GB/step"
        by_level.setdefault(axis.level, []).append(f"{axis.name}={axis.degree}{amount}")
    return {level: ", ".join(parts) for level, parts in by_level.items()}


def _domain(view: _View, index: int, first: int) -> Box:
    """The domain of level ``index`` whose first accelerator (or host) is ``first``."""
    if index < 0:
        return _leaf(view, first)
    level = view.levels[index]
    inside = view.span(index - 1)
    size = view.level_size(level)
    holds_hosts = view.node is None and inside < view.gpus_per_host < inside * size
    per_box = view.gpus_per_host if holds_hosts else inside
    count = inside * size // per_box
    is_leaf = per_box == 1 and view.node is None
    shown = count if is_leaf else min(count, _shown(view, per_box))
    children = [
        _host(view, index, first + i * per_box)
        if holds_hosts
        else _domain(view, index - 1, first + i * per_box)
        for i in range(shown)
    ]
    if shown < count:
        children.append(Box(kind="more", title=f"{count - shown} more like these"))
    is_host = view.node is None and inside * size == view.gpus_per_host
    is_outer = is_host and index + 1 < len(view.levels) and view.levels[index + 1].size == 1
    title = _host_title(view, first) if is_host and not is_outer else ""
    return Box(
        kind="host" if title else "level",
        title=title,
        joins=level_text(level),
        rails=view.gpus_per_host if level.rails else 0,
        traffic=view.traffic.get(level.name),
        children=tuple(children),
    )


def _shown(view: _View, per_box: int) -> int:
    """Trays are small: all of a rack; other domains: the first ones."""
    is_tray = view.node is None and per_box == view.gpus_per_host and per_box <= 4
    return _SHOWN_HOSTS if is_tray else _SHOWN_DOMAINS


def _host(view: _View, index: int, first: int) -> Box:
    """A host inside a link domain that spans several."""
    gpus = tuple(_leaf(view, first + i) for i in range(view.gpus_per_host))
    return Box(kind="host", title=_host_title(view, first), children=gpus)


def _host_title(view: _View, first: int) -> str:
    host = first // view.gpus_per_host
    name = view.hosts[host] if host < len(view.hosts) else f"host{host}"
    memory = f", {format_bytes(view.host_memory_bytes)}" if view.host_memory_bytes else ""
    return f"{name}{memory}"


def _leaf(view: _View, index: int) -> Box:
    if view.node is not None:
        return _discovered_host(view, index)
    colours = view.colours.of(index)
    title = f"rank {index}" if colours else f"{index % view.gpus_per_host}"
    return Box(kind="gpu", title=title, colours=colours)


def _discovered_host(view: _View, index: int) -> Box:
    """A host with its NUMA nodes, PCIe switches, GPUs and the cards near them."""
    node = view.node
    assert node is not None
    gpus = node.gpus or ()
    name = view.hosts[index] if index < len(view.hosts) else f"host{index}"
    if not gpus:
        numa = node.numa_nodes or ()
        parts = tuple(
            Box(
                kind="numa",
                title=f"NUMA {n}" + (f", {node.cpus[n]} processors" if n in node.cpus else ""),
            )
            for n in numa
        )
        return Box(kind="host", title=name, children=parts)
    first_rank = index * len(gpus)
    ranks = {gpu.label: first_rank + i for i, gpu in enumerate(gpus)}
    numa_of = {gpu.label: gpu.numa for gpu in gpus}
    placed: set[str] = set()
    parts_of_host = []
    for group in numa_groups(gpus, node.paths):
        inside = [
            box
            for labels in switch_groups(group, [nic.label for nic in node.nics or ()], node.paths)
            for box in _switch(view, labels, placed, ranks)
        ]
        inside += _cards(node, numa_of[group[0]], group, placed)
        affinity = numa_of[group[0]]
        title = f"NUMA {shown_list(affinity)}" if affinity else "PCIe"
        parts_of_host.append(Box(kind="numa", title=title, children=tuple(inside)))
    rest = [nic for nic in node.nics or () if nic.label not in placed]
    if rest:
        others = tuple(Box(kind="nic", title=nic.shown_name) for nic in rest)
        parts_of_host.append(Box(kind="numa", title="cards near no GPU", children=others))
    return Box(
        kind="host", title=name, joins=_links_text(view, node), children=tuple(parts_of_host)
    )


def _switch(
    view: _View, labels: Sequence[str], placed: set[str], ranks: Mapping[str, int]
) -> list[Box]:
    """GPUs behind common PCIe switches and their cards; a box of its own where it joins something."""
    node = view.node
    assert node is not None
    boxes = []
    for label in labels:
        colours = view.colours.of(ranks[label])
        title = f"{label} r{ranks[label]}" if colours else label
        boxes.append(Box(kind="gpu", title=title, colours=colours))
    near = [
        nic
        for nic in node.nics or ()
        if nic.label not in placed
        and any(_is_near(node, label, nic.label, ("PIX", "PXB")) for label in labels)
    ]
    placed.update(nic.label for nic in near)
    boxes += [Box(kind="nic", title=nic.shown_name) for nic in near]
    return [Box(kind="switch", title="PCIe", children=tuple(boxes))] if len(boxes) > 1 else boxes


def _cards(
    node: HostFacts, numa: tuple[int, ...] | None, gpus: Sequence[str], placed: set[str]
) -> list[Box]:
    """Cards of a NUMA node that are behind no switch of its GPUs."""
    cards = [
        nic
        for nic in node.nics or ()
        if nic.label not in placed
        and (
            any(_is_near(node, gpu, nic.label, ("PHB", "NODE")) for gpu in gpus)
            or (nic.numa is not None and numa is not None and nic.numa in numa)
        )
    ]
    placed.update(nic.label for nic in cards)
    return [Box(kind="nic", title=nic.shown_name) for nic in cards]


def _is_near(node: HostFacts, gpu: str, nic: str, kinds: Sequence[str]) -> bool:
    path = node.paths.get(pair(gpu, nic))
    return path is not None and path.kind in kinds


def _links_text(view: _View, node: HostFacts) -> str | None:
    """The levels inside the host, and which GPUs links join."""
    texts = [level_text(level) + _reached(view, level) for level in view.inner]
    groups = [g for g in linked([gpu.label for gpu in node.gpus or ()], node.paths) if len(g) > 1]
    if len(groups) > 1:
        texts.append("links join " + "; ".join("-".join(group) for group in groups))
    return "  |  ".join(texts) or None


def _reached(view: _View, level: FoundLevel) -> str:
    traffic = view.traffic.get(level.name)
    return f" [{traffic}]" if traffic else ""


def _with_storage(root: Box, bytes_per_s: float) -> Box:
    storage = Box(kind="storage", title=f"storage: write {format_bandwidth(bytes_per_s)} per host")
    return Box(kind="level", title="", children=(root, storage))
