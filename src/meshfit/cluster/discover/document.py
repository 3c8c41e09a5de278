"""A discovered cluster as the document that ``meshfit topo FILE --json`` prints, and as cluster.yaml."""

from collections.abc import Mapping
from typing import Any

import yaml

from meshfit.cluster.discover.conclude import FoundCluster
from meshfit.cluster.discover.cpu_list import cpu_list, shown_list
from meshfit.cluster.discover.domains import linked, numa_groups, switch_groups
from meshfit.cluster.discover.facts import FabricFacts, GpuFacts, HostFacts, NicFacts, pair
from meshfit.cluster.discover.levels import FoundLevel
from meshfit.cluster.discover.merge import fabrics_of
from meshfit.cluster.discover.nics import nearest_nics
from meshfit.errors import InputError
from meshfit.units import format_bytes


def discovery_document(cluster: FoundCluster) -> dict[str, Any]:
    """The published keys of ``topo`` and what is known of one host beside them; unknown is null."""
    found, entry = cluster.discovery, cluster.entry
    node = found.node or HostFacts()
    gpus = found.gpus
    memory = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    spec = entry.spec if entry else None
    return {
        "accelerators": cluster.num_accelerators,
        "accelerator": entry.name if entry else None,
        "accelerator_from": cluster.accelerator_from,
        "memory": min(memory) if memory else spec.memory_bytes if spec else None,
        "memory_from": "measured" if memory else "spec" if spec else None,
        "memory_free": cluster.free_bytes,
        "peak_flops_per_s": dict(spec.peak_flops_per_s) if spec else {},
        "memory_bandwidth": spec.memory_bytes_per_s if spec else None,
        "source": spec.source if spec else None,
        "gpus_per_host": cluster.gpus_per_host,
        "device_order": list(cluster.device_order),
        "hosts": list(found.hosts) or (["host0"] if found.node else []),
        "levels": [level_document(level) for level in cluster.levels],
        "nics": None if node.nics is None else [nic.shown_name for nic in node.nics],
        "numa_nodes": num_numa_nodes(node),
        "gpus": [_gpu(gpu) for gpu in gpus],
        "network_cards": [_nic(nic) for nic in node.nics or ()],
        "paths": _paths(node),
        "peer_access": {f"{a}-{b}": status for (a, b), status in node.peer_access.items()},
        "domains": domains(node),
        "nearest_nics": {
            label: {"path": kind, "nics": [nic.shown_name for nic in nics]}
            for label, (kind, nics) in nearest_nics(node).items()
        },
        "fabric": [_fabric(fabric) for fabric in dict.fromkeys(fabrics_of(node))],
        "network": None
        if found.network is None
        else {
            tier.name: {n: list(h) for n, h in tier.domains.items()} for tier in found.network.tiers
        },
        "here": False,
        "oversubscribed": False,
        "sources": [{"file": r.source, "format": r.format} for r in found.readings],
        "contradictions": list(found.contradictions),
        "missing": list(cluster.problems),
        "warnings": [*(f"contradiction: {c}" for c in found.contradictions), *cluster.notes],
    }


def num_numa_nodes(host: HostFacts) -> int | None:
    """NUMA nodes with processors that GPUs are near; None where no source says.

    Where GPUs' memory is a NUMA node of its own (Grace), affinities list those nodes too: each
    different list is one node with processors.
    """
    if host.numa_nodes is not None:
        return len(host.numa_nodes)
    affinities = [gpu.numa for gpu in host.gpus or () if gpu.numa is not None]
    if not affinities:
        return _num_processor_groups(host)
    if any(gpu.gpu_numa_id is not None for gpu in host.gpus or ()):
        return len(set(affinities))
    return len({node for affinity in affinities for node in affinity})


def _num_processor_groups(host: HostFacts) -> int | None:
    """Groups of processors that GPUs are near, where they are several without a member in common."""
    groups = {cpu_list(gpu.cpus) for gpu in host.gpus or () if gpu.cpus} - {None}
    members = [cpu for group in groups for cpu in group or ()]
    return len(groups) if len(groups) > 1 and len(members) == len(set(members)) else None


def domains(host: HostFacts) -> dict[str, list[list[str]]]:
    """Groups of GPUs over links, behind common PCIe switches, and of a NUMA node."""
    gpus = host.gpus or ()
    if not gpus:
        return {}
    labels = [gpu.label for gpu in gpus]
    groups = {
        "link": linked(labels, host.paths),
        "pcie_switch": switch_groups(labels, [nic.label for nic in host.nics or ()], host.paths),
        "numa": numa_groups(gpus, host.paths),
    }
    return {name: [list(group) for group in found] for name, found in groups.items()}


def memory_text(cluster: FoundCluster) -> str | None:
    """Memory of one accelerator, and what is free of it; None where neither is known."""
    memory = [gpu.memory_bytes for gpu in cluster.discovery.gpus if gpu.memory_bytes]
    if memory:
        total = f"{format_bytes(min(memory))} each"
    elif cluster.entry:
        total = f"{format_bytes(cluster.entry.spec.memory_bytes)} each by its specification"
    else:
        return None
    if cluster.free_bytes is None:
        return f"{total}, how much is free is not known"
    return f"{total}, {format_bytes(cluster.free_bytes)} free"


def level_document(level: FoundLevel) -> dict[str, Any]:
    """One level as ``document.level_document``, with ``sizes`` where its domains are uneven."""
    document = {
        "name": level.name,
        "size": level.size,
        "kind": level.kind,
        "bandwidth": level.bytes_per_s,
        "latency": level.latency_s,
        "oversubscription": level.oversubscription or 1.0,
        "oversubscription_from": "spec" if level.oversubscription else "guess",
        "rails": level.rails,
        "from": level.source if level.bytes_per_s is not None else None,
        "members": level.members,
    }
    return document | ({} if level.is_even else {"sizes": list(level.sizes)})


def cluster_yaml(cluster: FoundCluster) -> str:
    """cluster.yaml, each bandwidth with where it comes from.

    Raises:
        InputError: a figure is missing; says which.
    """
    if cluster.problems:
        raise InputError("no cluster.yaml yet: " + "; ".join(cluster.problems))
    assert cluster.entry is not None
    document: dict[str, Any] = {
        "schema_version": 1,
        "accelerator": cluster.entry.name,
        "gpus_per_host": cluster.gpus_per_host,
        "levels": [
            _yaml_level(level, with_groups=bool(cluster.device_order)) for level in cluster.levels
        ],
    }
    if cluster.discovery.hosts:
        document["hosts"] = list(cluster.discovery.hosts)
    memory = [gpu.memory_bytes for gpu in cluster.discovery.gpus if gpu.memory_bytes]
    if memory:
        document["memory"] = min(memory)
    read = "".join(
        f"# {reading.format}: {reading.source}\n" for reading in cluster.discovery.readings
    )
    notes = "".join(f"# note: {note}\n" for note in cluster.notes)
    return read + notes + yaml.safe_dump(document, sort_keys=False, width=100)


def _yaml_level(level: FoundLevel, *, with_groups: bool) -> dict[str, Any]:
    groups = [list(group) for group in level.groups] if with_groups else []
    return {
        "name": level.name,
        "size": level.size,
        "kind": level.kind,
        "bandwidth": {"value": level.bytes_per_s, "from": level.source},
        "latency": {"value": level.latency_s, "from": "spec"},
        "rails": level.rails,
        "oversubscription": level.oversubscription or 1.0,
    } | ({"groups": groups} if groups else {})


def _gpu(gpu: GpuFacts) -> dict[str, Any]:
    return {
        "label": gpu.label,
        "name": gpu.name,
        "bus_id": gpu.bus_id,
        "numa": None if gpu.numa is None else shown_list(gpu.numa),
        "gpu_numa_id": gpu.gpu_numa_id,
        "cpus": gpu.cpus,
        "memory": gpu.memory_bytes,
        "memory_free": gpu.free_bytes,
        "links": None if gpu.links_bytes_per_s is None else len(gpu.links_bytes_per_s),
        "links_down": gpu.links_down,
        "pcie_generation": gpu.pcie_generation,
        "pcie_width": gpu.pcie_width,
        "mig": gpu.mig,
        "fabric": None if gpu.fabric is None else gpu.fabric.domain,
    }


def _nic(nic: NicFacts) -> dict[str, Any]:
    return {
        "label": nic.label,
        "name": nic.shown_name,
        "bus_id": nic.bus_id,
        "numa": nic.numa,
        "bandwidth": nic.bytes_per_s,
    }


def _paths(host: HostFacts) -> Mapping[str, list[str]]:
    """Rows of the matrix by device; ``-`` where no source says."""
    labels = [gpu.label for gpu in host.gpus or ()] + [nic.label for nic in host.nics or ()]
    if not host.paths:
        return {}
    return {
        a: ["X" if a == b else str(host.paths.get(pair(a, b), "-")) for b in labels] for a in labels
    }


def _fabric(fabric: FabricFacts) -> dict[str, Any]:
    return {
        "state": fabric.state,
        "status": fabric.status,
        "cluster_uuid": fabric.cluster_uuid,
        "clique_id": fabric.clique_id,
        "is_domain": fabric.domain is not None,
    }
