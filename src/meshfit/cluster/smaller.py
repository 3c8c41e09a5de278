"""A cluster of fewer nodes of the same kind, as a cluster.yaml says it."""

from typing import Any

from meshfit.cluster.topology import Level, Topology
from meshfit.errors import InputError


def smaller_cluster(topology: Topology, num_hosts: int) -> dict[str, Any]:
    """The first ``num_hosts`` hosts of ``topology``, as the content of a cluster.yaml; numbers survive
    exactly.

    Raises:
        InputError: it has no more than these, they do not fill its levels, or its devices are grouped.
    """
    if num_hosts >= topology.num_hosts:
        raise InputError(
            f"the cluster has {topology.num_hosts} hosts: give fewer than these, not {num_hosts}"
        )
    if topology.device_order:
        raise InputError(
            "a cluster whose levels group devices cannot be cut: describe the smaller one"
        )
    levels: list[dict[str, Any]] = []
    left = num_hosts * topology.gpus_per_host
    for level in topology.levels:
        size = min(level.size, left)
        if left % size:
            raise InputError(
                f"{num_hosts} hosts do not fill level {level.name!r} evenly: it joins {level.size}"
            )
        left //= size
        if size > 1 or not levels:
            levels.append(_level(level, size))
    document = {
        "schema_version": 1,
        "accelerator": topology.accelerator.name,
        "memory": topology.accelerator.memory_bytes,
        "gpus_per_host": topology.gpus_per_host,
        "levels": levels,
    }
    if topology.hosts:
        document["hosts"] = list(topology.hosts[:num_hosts])
    return document


def _level(level: Level, size: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": level.name,
        "size": size,
        "kind": level.kind,
        "bandwidth": f"{level.bandwidth_bytes_per_s!r} B/s",
        "latency": f"{level.latency_s!r} s",
        "oversubscription": level.oversubscription,
        "rails": level.rails,
        "from": level.source,
    }
    if level.transport is not None:
        document["transport"] = level.transport
    return document
