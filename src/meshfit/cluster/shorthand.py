"""``8x8 H100-SXM``: a cluster in three words, its links taken from the catalogue."""

import re
from dataclasses import dataclass, replace

from meshfit.cluster.catalogue import (
    accelerator_entry,
    accelerators,
    default_node_type,
    is_known,
    node_type,
    node_types,
)
from meshfit.cluster.entries import AcceleratorEntry, NodeType
from meshfit.cluster.topology import Level, LevelKind, Source, Topology
from meshfit.errors import InputError

EXAMPLE = "'8x8 H100-SXM' (nodes x accelerators of each)"

LATENCY_S: dict[str, float] = {"link": 3.4e-6, "pcie": 5.7e-6, "network": 14e-6}
"""One hop of a ring with the Simple protocol, by transport: the hardware latencies of NCCL 2.30.7's
tuning model (src/graph/tuning.cc) for NVLink, PCI and NET."""

_SHORTHAND = re.compile(r"\s*(?:(-?\d{1,9})\s*x\s*)?(-?\d{1,9})(\s*x)?\s+(.+?)\s*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class _Parts:
    text: str
    nodes: int
    per_node: int
    entry: AcceleratorEntry
    node: NodeType | None

    @property
    def total(self) -> int:
        return self.nodes * self.per_node


def is_shorthand(text: str) -> bool:
    """Whether ``text`` has the form of a shorthand."""
    return _SHORTHAND.fullmatch(text) is not None


def read_shorthand(text: str) -> Topology:
    """The cluster that ``8x8 H100-SXM``, ``8 H100-SXM`` or ``4x8 AWS-p5`` names.

    The name is an accelerator, which then sits in the node type it usually comes in, or a node
    type. Links, network cards and oversubscription are the catalogue's.

    Raises:
        InputError: an unknown name, a count below 1, more accelerators than a node holds, or
            several nodes of a kind whose network the catalogue does not know.
    """
    parts = _parse(text)
    inner = _inside(parts)
    covered = 1
    for level in inner:
        covered *= level.size
    outer = () if covered == parts.total else (_network(parts, parts.total // covered),)
    return Topology(
        accelerator=parts.entry.spec,
        levels=(*inner, *outer),
        gpus_per_host=_gpus_per_host(parts),
    )


def levels_of_one_host(entry: AcceleratorEntry, count: int, *, linked: bool) -> tuple[Level, ...]:
    """Levels that join ``count`` accelerators of this machine; ``linked``: a scale-up link is up.

    Raises:
        InputError: the catalogue does not know how such accelerators are joined.
    """
    node = default_node_type(entry.name) if linked else None
    return _inside(_Parts(text="here", nodes=1, per_node=count, entry=entry, node=node))


def _parse(text: str) -> _Parts:
    match = _SHORTHAND.fullmatch(text)
    if match is None:
        raise InputError(f"cluster {text!r} is not a shorthand; write it like {EXAMPLE}")
    nodes, per_node, name = int(match.group(1) or 1), int(match.group(2)), match.group(4)
    if match.group(3):
        raise InputError(
            f"cluster {text!r}: hosts or accelerators? Write '1x{per_node} {name}' for one host of "
            f"{per_node}, '{per_node}x8 {name}' for {per_node} hosts of 8"
        )
    if nodes < 1 or per_node < 1:
        raise InputError(f"cluster {text!r}: both counts must be at least 1, as in {EXAMPLE}")
    if is_known(name, node_types()) and not is_known(name, accelerators()):
        node: NodeType | None = node_type(name)
        assert node is not None
        entry = accelerator_entry(node.accelerators[0])
    else:
        entry = accelerator_entry(name)
        node = default_node_type(entry.name)
    parts = _Parts(text=text, nodes=nodes, per_node=per_node, entry=entry, node=node)
    if node is not None:
        _check_fits(parts, node)
    return parts


def _check_fits(parts: _Parts, node: NodeType) -> None:
    """Accelerators of a node are those of one host, or fill whole hosts of one link domain."""
    most = max(node.gpus_per_host, node.link_domain)
    if parts.per_node > most:
        raise InputError(
            f"cluster {parts.text!r}: a {node.name} joins {most} {parts.entry.name}, not "
            f"{parts.per_node}; write {-(-parts.total // most)}x{most}"
        )
    if parts.per_node > node.gpus_per_host and parts.per_node % node.gpus_per_host:
        raise InputError(
            f"cluster {parts.text!r}: a host of {node.name} holds {node.gpus_per_host}, so "
            f"{parts.per_node} do not fill whole hosts"
        )


def _gpus_per_host(parts: _Parts) -> int:
    if parts.node is None:
        return parts.per_node
    return min(parts.per_node, parts.node.gpus_per_host)


def _inside(parts: _Parts) -> tuple[Level, ...]:
    """Levels up to one host, or up to the link domain where that is larger."""
    node, entry = parts.node, parts.entry
    if node is None or node.link_kind is None or node.link_domain == 1:
        return (_bus(parts, parts.per_node),)
    link = node.link_bytes_per_s or entry.link_bytes_per_s
    domain = min(node.link_domain, parts.per_node)
    if node.link_domain > node.gpus_per_host:
        domain = _multi_host_domain(parts, node)
    level = _level("link", domain, node.link_kind, link, "link")
    if domain >= parts.per_node:
        return (level,)
    if parts.per_node % domain:
        raise InputError(
            f"cluster {parts.text!r}: {parts.per_node} accelerators do not fill link domains of "
            f"{domain} ({node.name}); write cluster.yaml with its levels"
        )
    return (level, _bus(parts, parts.per_node // domain))


def _multi_host_domain(parts: _Parts, node: NodeType) -> int:
    """Accelerators of one link domain that spans hosts, as an NVL72 rack does."""
    if parts.per_node > node.gpus_per_host or parts.total <= node.link_domain:
        return parts.per_node if parts.per_node > node.gpus_per_host else parts.total
    domain = node.link_domain // parts.per_node * parts.per_node
    if parts.total % domain:
        raise InputError(
            f"cluster {parts.text!r}: {parts.total} accelerators do not fill link domains of "
            f"{domain} ({node.name}); write domains x accelerators, as in "
            f"'{-(-parts.total // domain)}x{domain} {parts.entry.name}'"
        )
    return domain


def _bus(parts: _Parts, size: int) -> Level:
    rate = parts.entry.spec.host_link_bytes_per_s
    if rate is None:
        raise InputError(
            f"cluster {parts.text!r}: how {parts.entry.name} are joined is not in the catalogue; "
            f"write cluster.yaml with its levels"
        )
    # The catalogue knows one accelerator's own lanes; that all share one such rate is a guess.
    return _level("pcie", size, "bus", rate, "pcie", source="guess")


def _network(parts: _Parts, size: int) -> Level:
    node = parts.node
    if node is None or node.nic_bytes_per_s is None:
        raise InputError(
            f"cluster {parts.text!r}: the catalogue knows no network of {parts.entry.name} nodes; "
            f"write cluster.yaml with its levels"
        )
    return replace(
        network_level(size, node.nic_bytes_per_s, source="spec"),
        oversubscription=node.oversubscription or 1.0,
        rails=node.rails,
        transport=node.transport,
    )


def network_level(size: int, bytes_per_s: float, *, source: Source = "typed") -> Level:
    """``size`` nodes on one switch, at so much per accelerator and direction."""
    return _level("network", size, "switch", bytes_per_s, "network", source=source)


def _level(
    name: str, size: int, kind: LevelKind, rate: float, transport: str, *, source: Source = "spec"
) -> Level:
    return Level(
        name=name,
        size=size,
        kind=kind,
        bandwidth_bytes_per_s=rate,
        latency_s=LATENCY_S[transport],
        source=source,
    )
