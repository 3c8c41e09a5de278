"""Everything that is measured of one cluster."""

from math import prod
from pathlib import Path

import psutil
import torch
import torch.distributed as dist

from meshfit.cluster.discover.here_sysfs import card_rates
from meshfit.errors import RunError
from meshfit.measure.probe.clock import slowest
from meshfit.measure.probe.device import (
    host_to_device_bytes_per_s,
    kernel_rates,
    storage_write_bytes_per_s,
)
from meshfit.measure.probe.fabric import Fabric
from meshfit.record.environment import host_name
from meshfit.record.probe import ProbeRecord, ProbeRequest

_SYS = Path("/sys")

USABLE_FRACTION = 0.5
"""Of the memory that is free when the probe starts, shared by the ranks of a host."""


def probe(request: ProbeRequest, device: torch.device, now: str) -> ProbeRecord:
    """The curves file; every rank takes part and gets it.

    Raises:
        RunError: more or fewer ranks than the topology has accelerators, or ranks on other hosts
            than planned.
    """
    hosts = _hosts(request)
    fabric = Fabric(request, device, _free_bytes(request, device))
    curves = tuple(fabric.curves())
    absent = {}
    is_cuda = device.type == "cuda"
    if not is_cuda:
        absent = {"kernels": "CUDA only", "host_to_device": "CUDA only"}
    if request.storage is None:
        absent["storage"] = "no folder given"
    return ProbeRecord(
        measured_at=now,
        source="meshfit probe",
        accelerator=request.accelerator,
        library=_library(device),
        level_names=request.level_names,
        level_sizes=request.level_sizes,
        gpus_per_host=request.gpus_per_host,
        hosts=hosts,
        curves=curves,
        links=tuple(fabric.links()),
        groups=tuple(fabric.group_rates),
        kernels=kernel_rates(device) if is_cuda else (),
        host_to_device_bytes_per_s=host_to_device_bytes_per_s(device) if is_cuda else None,
        storage_write_bytes_per_s=_storage(request, device),
        cards=card_rates(_SYS),
        absent=absent,
    )


def _hosts(request: ProbeRequest) -> tuple[str, ...]:
    """Host of every rank, where they are as planned."""
    world, planned = dist.get_world_size(), prod(request.level_sizes)
    if world != planned:
        raise RunError(f"{world} ranks, but the topology has {planned} accelerators")
    names: list[str] = [""] * world
    dist.all_gather_object(names, host_name())
    if request.hosts and tuple(names) != request.hosts:
        raise RunError(
            f"ranks are on {', '.join(names)}, but {', '.join(request.hosts)} is planned"
        )
    return tuple(names)


def _free_bytes(request: ProbeRequest, device: torch.device) -> int:
    """What one rank may use; the least of all."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = psutil.virtual_memory().available // request.gpus_per_host
    return int(-slowest(-free * USABLE_FRACTION, None, device))


def _storage(request: ProbeRequest, device: torch.device) -> float | None:
    """Bytes per second of the slowest rank, all writing at once."""
    if request.storage is None:
        return None
    return -slowest(-storage_write_bytes_per_s(Path(request.storage)), None, device)


def _library(device: torch.device) -> str:
    if device.type != "cuda":
        return f"gloo of torch {torch.__version__}"
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return f"{'rccl' if torch.version.hip else 'nccl'} {version}"
