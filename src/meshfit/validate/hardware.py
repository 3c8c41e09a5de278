"""The cluster of a row: accelerators, nodes and network, from its columns and the catalogue."""

import itertools
import re
from dataclasses import replace
from functools import cache

from meshfit.cluster.catalogue import accelerators, default_node_type, is_known, node_types
from meshfit.cluster.entries import AcceleratorEntry, NodeType, normal_spelling
from meshfit.cluster.shorthand import levels_of_one_host, network_level, read_shorthand
from meshfit.cluster.topology import AcceleratorSpec, Level, Topology
from meshfit.errors import InputError
from meshfit.validate.rows import NotModelledError, TruthRow

CLUSTER_COLUMNS: tuple[str, ...] = (
    "gpu", "gpus_per_node", "n_gpus", "interconnect", "capacity_bytes", "flags",
)  # fmt: skip
"""Columns that a cluster is made from; rows that agree in them share one."""

BITS_PER_BYTE = 8
_GIGA = 1e9


def topology_of(row: TruthRow) -> Topology:
    """The cluster that a row names; what it does not print is the catalogue's.

    Memory is the row's ``capacity_bytes``. Printed facts that go before the catalogue: accelerators
    a node, a rate of the network or of the links inside a node, a cloud's node type, a power limit.

    Raises:
        NotModelledError: the accelerator is not in the catalogue, or no network is known.
    """
    return _topology(tuple(row.text(name) for name in CLUSTER_COLUMNS))


@cache
def _topology(cells: tuple[str, ...]) -> Topology:
    row = TruthRow(dict(zip(CLUSTER_COLUMNS, cells, strict=True)))
    entry = _entry(row)
    count = row.whole("n_gpus") or 1
    node = _printed_node_type(row, entry) or default_node_type(entry.name)
    usual = row.whole("gpus_per_node") or (node.gpus_per_host if node else count)
    together = _joined_by_links(count, usual, node)
    printed = _network_bytes_per_s(row, usual)
    try:
        topology = _catalogues(entry, node, count // together, together, printed)
    except InputError as error:
        raise NotModelledError(str(error)) from error
    levels = _with_link_rate(row, topology.levels)
    return replace(topology, accelerator=_specification(row, entry.spec), levels=levels)


def _joined_by_links(count: int, per_host: int, node: NodeType | None) -> int:
    """Accelerators of a host, or of a rack where the link joins hosts (an NVL72 takes as many of its
    72 as divide the job evenly)."""
    joins_hosts = node is not None and node.link_domain > node.gpus_per_host
    return _largest_divisor(count, node.link_domain if node and joins_hosts else per_host)


def _catalogues(
    entry: AcceleratorEntry, node: NodeType | None, nodes: int, per_node: int, printed: float | None
) -> Topology:
    """``nodes`` of ``per_node`` accelerators, joined as in the catalogue; by a ``printed`` network
    where there is one. A host of more than its node type holds has them on PCIe.

    Raises:
        InputError: the catalogue does not know how they are joined.
    """
    if node is not None and per_node > max(node.gpus_per_host, node.link_domain):
        levels = levels_of_one_host(entry, per_node, linked=False)
        inside = Topology(accelerator=entry.spec, levels=levels, gpus_per_host=per_node)
        if nodes == 1:
            return inside
        if printed is None:
            raise InputError(f"no network of hosts of {per_node} {entry.name} is known")
        return _joined(inside, nodes, printed)
    named = node.name if node is not None and len(node.accelerators) == 1 else entry.name
    if printed is None or nodes == 1:
        return read_shorthand(f"{nodes}x{per_node} {named}")
    return _joined(read_shorthand(f"1x{per_node} {named}"), nodes, printed)


def _entry(row: TruthRow) -> AcceleratorEntry:
    """The accelerator; ``H100-80GB`` by its whole name, else without the size of its memory."""
    name = row.text("gpu")
    bare = name.split("-")[0]
    size = name.removeprefix(bare).strip("-")
    spellings = [f"{bare}-PCIe-{size}"] if row.text("interconnect") == "PCIe" else []
    for spelling in (*spellings, name, bare):
        wanted = normal_spelling(spelling)
        for entry in accelerators():
            if spelling and entry.is_spelt(wanted):
                return entry
    raise NotModelledError(f"accelerator not in the catalogue: {name or 'none stated'}")


def _specification(row: TruthRow, spec: AcceleratorSpec) -> AcceleratorSpec:
    limit = re.search(r"(\d+) ?W limit", row.text("flags"))
    return replace(
        spec,
        memory_bytes=row.whole("capacity_bytes") or spec.memory_bytes,
        power_limit_w=float(limit[1]) if limit else None,
    )


def _printed_node_type(row: TruthRow, entry: AcceleratorEntry) -> NodeType | None:
    """A cloud's node type that the row names and that holds its accelerator."""
    words = row.text("interconnect").split()
    spellings = (*words, *(" ".join(pair) for pair in itertools.pairwise(words)))
    for spelling in spellings:
        if not is_known(spelling, node_types()):
            continue
        wanted = normal_spelling(spelling)
        return next(
            (n for n in node_types() if n.is_spelt(wanted) and entry.name in n.accelerators), None
        )
    return None


def _largest_divisor(count: int, most: int) -> int:
    """The largest number of accelerators a node, up to ``most``, that fills whole nodes."""
    return next(size for size in range(min(count, max(1, most)), 0, -1) if count % size == 0)


def _network_bytes_per_s(row: TruthRow, per_node: int) -> float | None:
    """Rate of the printed network per accelerator and direction; None where none is printed."""
    text = row.text("interconnect")
    if match := re.search(r"([\d.]+) ?Gb(?:/s|ps)?[^;]* per GPU", text):
        return float(match[1]) / BITS_PER_BYTE * _GIGA
    if match := re.search(r"(\d+) ?x ?([\d.]+) ?Gb", text):
        return int(match[1]) * float(match[2]) / BITS_PER_BYTE * _GIGA / per_node
    if match := re.search(r"([\d.]+) ?Gbps (?:inter-node|node-node)", text):
        return float(match[1]) / BITS_PER_BYTE * _GIGA / per_node
    return None


def _joined(inside: Topology, nodes: int, rate: float) -> Topology:
    return replace(inside, levels=(*inside.levels, network_level(nodes, rate)))


def _with_link_rate(row: TruthRow, levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """The innermost level at a printed rate (``50 GBps intra-node``: of one pair in a mesh)."""
    match = re.search(r"([\d.]+) ?GBps intra-node", row.text("interconnect"))
    if match is None:
        return levels
    rate = float(match[1]) * _GIGA
    return (replace(levels[0], bandwidth_bytes_per_s=rate, source="typed"), *levels[1:])
