"""From what a person writes under ``cluster:`` to a ``Topology``."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshfit.cluster.catalogue import accelerator
from meshfit.cluster.device_order import device_order, nests
from meshfit.cluster.discover import nvidia_topo
from meshfit.cluster.discover.conclude import conclude, topology_of
from meshfit.cluster.discover.merge import merge
from meshfit.cluster.discover.text import source_of
from meshfit.cluster.here import this_machine
from meshfit.cluster.hostlist import expand_hosts
from meshfit.cluster.lab import lab_topology, read_lab_block, require_lab_up
from meshfit.cluster.schema import ClusterFile, HereBlock, HereFile, LevelFile, Quantity, Sourced
from meshfit.cluster.shorthand import EXAMPLE, LATENCY_S, is_shorthand, read_shorthand
from meshfit.cluster.topology import AcceleratorSpec, Level, Topology
from meshfit.errors import InputError, shown
from meshfit.files import is_file, read_yaml_mapping, validate
from meshfit.units import parse_bandwidth, parse_bytes, parse_duration

_YAML = (".yaml", ".yml")
MOST_ACCELERATORS = 2**20
"""Several times the largest cluster there is; layouts of far more could not be searched."""


def read_topology(value: str | Mapping[str, Any], base: Path) -> Topology:
    """The topology of ``here``, of ``lab`` (the one that is up), of a shorthand, of a cluster.yaml
    (relative to ``base``) or of its content.

    Raises:
        InputError: none of these, anything wrong in it, or more than ``MOST_ACCELERATORS``.
    """
    if isinstance(value, Mapping):
        if "here" in value:
            block = validate(HereBlock, value, "cluster")
            return _here(block.here)
        return _described(value, "cluster")
    text = value.strip()
    if text == "here":
        return _here(HereFile())
    if text == "lab":
        return lab_topology(require_lab_up())
    path = base / text
    if path.suffix in _YAML or is_file(path):
        return _described(read_yaml_mapping(path), str(path))
    if text.lower().startswith("auto x "):
        raise InputError(
            f"cluster {text!r}: auto is for serving; training says how many: {EXAMPLE}"
        )
    if is_shorthand(text):
        topology = read_shorthand(text)
        _check_size(topology)
        return topology
    if path.suffix or "/" in text:
        raise InputError(f"cluster: there is no file {path}; without one, write {EXAMPLE}")
    raise InputError(
        f"cluster {shown(text)} is no shorthand, no .yaml file and not `here`; write {EXAMPLE}"
    )


def _here(file: HereFile) -> Topology:
    return this_machine(
        ranks=file.ranks,
        oversubscribe=file.oversubscribe,
        device=file.device,
        free_memory=file.memory == "free",
    )


def _described(document: Mapping[str, Any], source: str) -> Topology:
    """A cluster, or a lab, by its description."""
    if "lab" in document:
        return lab_topology(read_lab_block(document, source))
    return _cluster(validate(ClusterFile, document, source), source)


def _cluster(file: ClusterFile, source: str) -> Topology:
    inside = None if file.matrix is None else _host_of_matrix(file.matrix, file, source)
    if inside is None and not file.levels:
        raise InputError(f"{source}: levels is empty; write at least one, or the matrix of a host")
    gpus_per_host = file.gpus_per_host or (inside.gpus_per_host if inside else file.levels[0].size)
    levels = list(inside.levels) if inside else []
    domain = inside.num_accelerators if inside else 1
    for level in file.levels:
        domain *= level.size
        levels.append(_level(level, outside_host=domain > gpus_per_host and len(levels) > 0))
    topology = Topology(
        accelerator=_with_memory(accelerator(file.accelerator), file.memory, source),
        levels=tuple(levels),
        gpus_per_host=gpus_per_host,
        hosts=_hosts(file.hosts),
        device_order=inside.device_order if inside else _device_order(file, gpus_per_host, source),
        host_memory_bytes=None if file.host_memory is None else parse_bytes(file.host_memory),
        storage_write_bytes_per_s=_storage(file),
    )
    _check(topology, source)
    return topology


def _host_of_matrix(matrix: str, file: ClusterFile, source: str) -> Topology:
    """One host of the accelerators between which the matrix says the paths.

    Raises:
        InputError: not square, a cell that is no path, or paths that do not make even levels.
    """
    rows = [line.split() for line in matrix.splitlines() if line.strip()]
    if rows and "X" not in rows[0]:
        rows = rows[1:]  # a header
    labelled = [
        row if row[0].startswith("GPU") else [f"GPU{index}", *row] for index, row in enumerate(rows)
    ]
    text = "\n".join("\t".join(row) for row in labelled)
    host = nvidia_topo.read(source_of(f"{source}: matrix", text))
    topology = topology_of(conclude(merge([host]), file.accelerator))
    if file.gpus_per_host not in (None, topology.gpus_per_host):
        raise InputError(
            f"{source}: gpus_per_host {file.gpus_per_host}, but the matrix is of "
            f"{topology.gpus_per_host}"
        )
    return topology


def _device_order(file: ClusterFile, gpus_per_host: int, source: str) -> tuple[int, ...]:
    """The order that the groups of levels ask for; empty where none do.

    Raises:
        InputError: groups that are no domains of their level, or do not nest.
    """
    groupings: list[list[list[int]]] = []
    domain = 1
    for level in file.levels:
        domain *= level.size
        if level.groups is None:
            continue
        sizes = sorted({len(group) for group in level.groups})
        devices = sorted(device for group in level.groups for device in group)
        if devices != list(range(gpus_per_host)) or sizes != [domain]:
            raise InputError(
                f"{source}: groups of level {level.name!r} must hold each of the {gpus_per_host} "
                f"devices of a host once, {domain} to a group; found groups of "
                f"{', '.join(map(str, sizes))}. Domains of unequal size are no level: write those "
                f"of the size that divides all of them"
            )
        if groupings and not nests(groupings[-1], level.groups):
            raise InputError(
                f"{source}: groups of level {level.name!r} cut groups of the level inside it"
            )
        groupings.append(level.groups)
    order = device_order(groupings, gpus_per_host)
    return () if order == tuple(range(gpus_per_host)) else order


def _level(file: LevelFile, *, outside_host: bool) -> Level:
    """A level; a latency that is not given is that of the transport it most likely is."""
    bandwidth, source = _number(file.bandwidth)
    rate = parse_bandwidth(bandwidth)
    if rate <= 0:
        raise InputError(f"level {file.name}: bandwidth {bandwidth!r} must be greater than 0")
    if file.latency is None:
        transport = "network" if outside_host else "pcie" if file.kind == "bus" else "link"
        latency_s = LATENCY_S[transport]
    else:
        latency, _ = _number(file.latency)
        latency_s = parse_duration(latency)
        if latency_s < 0:
            raise InputError(f"level {file.name}: latency {latency!r} must not be negative")
    return Level(
        name=file.name,
        size=file.size,
        kind=file.kind,
        bandwidth_bytes_per_s=rate,
        latency_s=latency_s,
        oversubscription=file.oversubscription,
        rails=file.rails,
        transport=file.transport,
        source=source or file.source,
    )


def _number(quantity: Quantity) -> tuple[str | float, Any]:
    """A quantity and where it comes from, None when it does not say."""
    if isinstance(quantity, Sourced):
        return quantity.value, quantity.source
    return quantity, None


def _with_memory(spec: AcceleratorSpec, memory: str | int, source: str) -> AcceleratorSpec:
    if memory == "total":
        return spec
    if memory == "free":
        raise InputError(
            f"{source}: memory free is known on this machine only (cluster: {{here: {{memory: "
            f"free}}}}); write the bytes, as in memory: 70 GiB"
        )
    memory_bytes = parse_bytes(memory)
    if not memory_bytes > 0:
        raise InputError(f"{source}: memory {memory!r} must be greater than 0")
    return replace(spec, memory_bytes=memory_bytes)


def _hosts(hosts: str | list[str] | None) -> tuple[str, ...]:
    if hosts is None:
        return ()
    return expand_hosts(hosts if isinstance(hosts, str) else ",".join(hosts))


def _storage(file: ClusterFile) -> float | None:
    if file.storage is None:
        return None
    rate = parse_bandwidth(file.storage.write.removesuffix("per node").strip())
    if rate <= 0:
        raise InputError(f"storage.write {file.storage.write!r} must be greater than 0")
    return rate


def _check_size(topology: Topology) -> None:
    if topology.num_accelerators > MOST_ACCELERATORS:
        raise InputError(
            f"cluster of {topology.num_accelerators:,} accelerators: at most "
            f"{MOST_ACCELERATORS:,} can be planned for"
        )


def _check(topology: Topology, source: str) -> None:
    """Hosts and levels agree."""
    _check_size(topology)
    per_host = topology.gpus_per_host
    names = [level.name for level in topology.levels]
    if len(set(names)) != len(names):
        raise InputError(f"{source}: levels need names of their own, found {', '.join(names)}")
    for level, size in zip(topology.levels, topology.domain_sizes(), strict=True):
        if size % per_host and per_host % size:
            raise InputError(
                f"{source}: gpus_per_host {per_host} does not fit level {level.name!r} of {size} "
                f"accelerators: one must divide the other"
            )
    if topology.num_accelerators % per_host:
        raise InputError(
            f"{source}: gpus_per_host {per_host} is more than the {topology.num_accelerators} "
            f"accelerators of all levels together"
        )
    if topology.hosts and len(topology.hosts) != topology.num_hosts:
        raise InputError(
            f"{source}: hosts names {len(topology.hosts)}, but {topology.num_accelerators} "
            f"accelerators at {per_host} a host are {topology.num_hosts} hosts"
        )
