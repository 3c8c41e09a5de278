"""This machine as a topology: its GPUs, or its processor cores as ranks."""

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Literal

import psutil

from meshfit.cluster.catalogue import accelerator_entry
from meshfit.cluster.cpu import CpuFigures, read_cpu
from meshfit.cluster.discover.conclude import conclude, topology_of
from meshfit.cluster.discover.here import read_here
from meshfit.cluster.discover.here_sysfs import numa_cpus
from meshfit.cluster.discover.merge import merge
from meshfit.cluster.nvml import Gpu, visible_gpus
from meshfit.cluster.shorthand import levels_of_one_host
from meshfit.cluster.topology import AcceleratorSpec, Level, Topology
from meshfit.errors import InputError
from meshfit.units import format_bytes

_SYS = Path("/sys")
PROCESS_BYTES = 400 * 10**6
"""Resident memory of one Python process that has imported torch (measured: 380 to 420 MB)."""


def this_machine(
    *,
    ranks: int | None = None,
    oversubscribe: bool = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    free_memory: bool = False,
) -> Topology:
    """GPUs where there are any (``device`` decides otherwise), else CPU ranks.

    ``ranks`` defaults to all GPUs, or to the physical cores. ``free_memory`` counts what the GPUs
    have free now instead of their whole memory.

    Raises:
        InputError: more ranks than GPUs, more ranks than cores without ``oversubscribe``, too
            little memory for the ranks, or a GPU that the catalogue does not know.
    """
    gpus = () if device == "cpu" else visible_gpus()
    if device == "cuda" and not gpus:
        raise InputError("here: device cuda, but no NVIDIA GPU is visible; write device: cpu")
    if gpus:
        return _gpu_topology(gpus, ranks, free_memory=free_memory)
    return _cpu_topology(ranks, oversubscribe=oversubscribe)


def require_memory(ranks: int, available_bytes: int, per_rank_bytes: int = PROCESS_BYTES) -> None:
    """Refuses more ranks than the memory of this machine holds.

    Raises:
        InputError: with the most ranks that fit.
    """
    if ranks * per_rank_bytes <= available_bytes:
        return
    most = available_bytes // per_rank_bytes
    raise InputError(
        f"{ranks} ranks need about {format_bytes(ranks * per_rank_bytes)} of memory "
        f"({format_bytes(per_rank_bytes)} each), but {format_bytes(available_bytes)} are available; "
        + (f"ranks: {most} would fit" if most else "not one rank fits")
    )


def available_memory() -> int:
    """Bytes that new processes here can still use: the system's, or a container's if that is less."""
    system = int(psutil.virtual_memory().available)
    return min([system, *_container_remainders()])


def _container_remainders() -> list[int]:
    """What the memory limits of control groups (version 2, then 1) leave."""
    root = Path("/sys/fs/cgroup")
    remainders = []
    for limit, usage in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            total, used = (root / limit).read_text().strip(), (root / usage).read_text().strip()
        except OSError:
            continue
        if total.isdigit():  # version 2 writes "max" for no limit
            remainders.append(max(0, int(total) - int(used)))
    return remainders


def physical_cores() -> int:
    """Physical cores that this process may run on."""
    physical = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return min(physical, len(os.sched_getaffinity(0)))


def _gpu_topology(gpus: tuple[Gpu, ...], ranks: int | None, *, free_memory: bool) -> Topology:
    count = ranks or len(gpus)
    if count > len(gpus):
        raise InputError(
            f"here: {count} ranks, but {len(gpus)} GPUs are visible and NCCL takes one rank a GPU; "
            f"write ranks: {len(gpus)}, or device: cpu for CPU ranks"
        )
    used = gpus[:count]
    names = dict.fromkeys(gpu.name for gpu in used)
    if len(names) > 1:
        raise InputError(
            f"here: GPUs of several kinds ({', '.join(names)}); choose equal ones with "
            f"CUDA_VISIBLE_DEVICES"
        )
    entry = accelerator_entry(used[0].name)
    memory_bytes = min(gpu.free_bytes if free_memory else gpu.memory_bytes for gpu in used)
    linked = all(gpu.nvlink for gpu in used)
    apart = _linked_apart(count) if linked else None
    return Topology(
        accelerator=replace(entry.spec, memory_bytes=memory_bytes),
        levels=apart.levels if apart else levels_of_one_host(entry, count, linked=linked),
        device_order=apart.device_order if apart else (),
        gpus_per_host=count,
        hosts=(socket.gethostname(),),
        host_memory_bytes=int(psutil.virtual_memory().total),
        is_here=True,
    )


def _linked_apart(count: int) -> Topology | None:
    """All GPUs of this machine, where links join some of them and not all (bridged pairs); None
    where that is not so, or not known."""
    found = conclude(merge([read_here()]))
    if found.problems or len(found.discovery.gpus) != count:
        return None
    innermost = found.levels[0]
    return topology_of(found) if innermost.name == "link" and innermost.size < count else None


def _cpu_topology(ranks: int | None, *, oversubscribe: bool) -> Topology:
    cores = physical_cores()
    count = ranks or cores
    if count > cores and not oversubscribe:
        raise InputError(
            f"here: {count} ranks are more than the {cores} cores of this machine; write "
            f"ranks: {cores}, or {{here: {{ranks: {count}, oversubscribe: true}}}} to share cores"
        )
    available = available_memory()
    require_memory(count, available)
    figures = read_cpu()
    return Topology(
        accelerator=_cpu_rank(figures, cores, count, available // count),
        levels=_cpu_levels(figures, count),
        gpus_per_host=count,
        hosts=(socket.gethostname(),),
        host_memory_bytes=int(psutil.virtual_memory().total),
        oversubscribed=count > cores,
        shared_cores=cores if count > cores else None,
        is_here=True,
    )


def _cpu_levels(figures: CpuFigures, ranks: int) -> tuple[Level, ...]:
    """A level of NUMA nodes inside the host, where there are several and ranks fill them evenly."""
    nodes = len(numa_cpus(_SYS))
    sizes = {"numa": ranks // nodes, "host": nodes} if nodes > 1 and ranks % nodes == 0 else {}
    return tuple(
        Level(
            name=name,
            size=size,
            kind="bus",
            bandwidth_bytes_per_s=figures.loopback_bytes_per_s,
            latency_s=figures.loopback_latency_s,
            source="guess",
        )
        for name, size in (sizes or {"host": ranks}).items()
    )


def _cpu_rank(figures: CpuFigures, cores: int, ranks: int, memory_bytes: int) -> AcceleratorSpec:
    """One rank on one core, or on its share of a core; memory bandwidth is shared by all ranks."""
    share = min(1.0, cores / ranks)
    return AcceleratorSpec(
        name="cpu",
        device_type="cpu",
        memory_bytes=memory_bytes,
        peak_flops_per_s={
            "fp32": figures.fp32_flops_per_s_per_core * share,
            "bf16": figures.bf16_flops_per_s_per_core * share,
        },
        matmul_fraction=figures.matmul_fraction,
        memory_bytes_per_s=figures.memory_bytes_per_s / ranks,
        source=figures.source,
    )
