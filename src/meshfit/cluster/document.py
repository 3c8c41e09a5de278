"""Topologies and catalogue entries as the documents that ``--json`` prints."""

from pathlib import Path
from typing import Any

from meshfit.cluster.catalogue import accelerator_entry
from meshfit.cluster.entries import AcceleratorEntry, NodeType
from meshfit.cluster.topology import Level, Topology
from meshfit.errors import InputError

_SYS = Path("/sys")


def topology_document(topology: Topology, sys: Path = _SYS) -> dict[str, Any]:
    """The published keys of ``topo``; what could not be had is null, with a warning that says so."""
    accelerator = topology.accelerator
    return {
        "accelerators": topology.num_accelerators,
        "accelerator": accelerator.name,
        "memory": accelerator.memory_bytes,
        "peak_flops_per_s": dict(accelerator.peak_flops_per_s),
        "matmul_fraction": accelerator.matmul_fraction,
        "memory_bandwidth": accelerator.memory_bytes_per_s,
        "source": accelerator.source,
        "gpus_per_host": topology.gpus_per_host,
        "device_order": list(topology.device_order),
        "hosts": [
            topology.host_of(index * topology.gpus_per_host) for index in range(topology.num_hosts)
        ],
        "host_memory": topology.host_memory_bytes,
        "levels": [level_document(level) for level in topology.levels],
        "oversubscribed": topology.oversubscribed,
        "here": topology.is_here,
        "nics": _names(sys / "class/infiniband") if topology.is_here else None,
        "numa_nodes": len(_names(sys / "devices/system/node", "node[0-9]*"))
        if topology.is_here
        else None,
        "warnings": warnings(topology),
    }


def level_document(level: Level) -> dict[str, Any]:
    """One level: ``size`` in members of the level inside, rates per accelerator and direction."""
    return {
        "name": level.name,
        "size": level.size,
        "kind": level.kind,
        "bandwidth": level.bandwidth_bytes_per_s,
        "latency": level.latency_s,
        "oversubscription": level.oversubscription,
        "rails": level.rails,
        "transport": level.transport,
        "from": level.source,
    }


def warnings(topology: Topology) -> list[str]:
    """What a reader of the figures should know."""
    found = []
    if topology.oversubscribed:
        found.append(f"{topology.num_accelerators} ranks share the cores of this machine")
    guessed = [level.name for level in topology.levels if level.source == "guess"]
    if guessed:
        found.append(f"bandwidth and latency of {', '.join(guessed)} are guesses, not measurements")
    unverified = _unverified(topology.accelerator.name)
    if unverified:
        found.append(f"{topology.accelerator.name}: unverified figures: {', '.join(unverified)}")
    if not topology.is_here:
        found.append("network cards and NUMA nodes are discovered on this machine only")
    return found


def accelerator_document(entry: AcceleratorEntry) -> dict[str, Any]:
    """One accelerator of the catalogue, with the source of its figures."""
    spec = entry.spec
    return {
        "name": spec.name,
        "aliases": list(entry.aliases),
        "vendor": entry.vendor,
        "device_type": spec.device_type,
        "memory": spec.memory_bytes,
        "memory_from": entry.memory_from,
        "memory_bandwidth": spec.memory_bytes_per_s,
        "peak_flops_per_s": dict(spec.peak_flops_per_s),
        "matmul_fraction": spec.matmul_fraction,
        "link_bandwidth": entry.link_bytes_per_s,
        "link_kind": entry.link_kind,
        "host_link_bandwidth": spec.host_link_bytes_per_s,
        "source": spec.source,
        "unverified": list(entry.unverified),
    }


def node_type_document(node: NodeType) -> dict[str, Any]:
    """One node type of the catalogue, with the source of its figures."""
    return {
        "name": node.name,
        "aliases": list(node.aliases),
        "accelerators": list(node.accelerators),
        "gpus_per_host": node.gpus_per_host,
        "link_kind": node.link_kind,
        "link_domain": node.link_domain,
        "nics": node.num_nics,
        "nic_bandwidth_per_accelerator": node.nic_bytes_per_s,
        "rails": node.rails,
        "oversubscription": node.oversubscription,
        "source": node.source,
        "unverified": list(node.unverified),
    }


def _unverified(accelerator_name: str) -> tuple[str, ...]:
    try:
        return accelerator_entry(accelerator_name).unverified
    except InputError:  # a CPU rank is not in the catalogue
        return ()


def _names(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))
