"""Memory as the operating system and the CUDA allocator see it, whole and without categories."""

import resource
import sys
from dataclasses import dataclass, replace

import torch

from meshfit.breakdown import MemoryBreakdown
from meshfit.measure.nvml import gpu_handle, process_bytes


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """Peaks of one CUDA device since they were last reset, in bytes.

    ``context`` is what the process holds outside PyTorch's allocator now: driver, kernels,
    communicators. None where the driver does not tell processes apart.
    """

    allocated: int
    reserved: int
    context: int | None


def peak_resident_bytes() -> int:
    """Largest resident set of this process so far: tensors, libraries, interpreter and all."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


def reset_device_peak(device: torch.device) -> None:
    """Let ``device_memory`` count from here on, without blocks the allocator only keeps for later.

    Does nothing on the CPU.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def device_memory(device: torch.device) -> DeviceMemory | None:
    """Peaks of a CUDA device; None on the CPU, which has no allocator to ask."""
    if device.type != "cuda":
        return None
    return DeviceMemory(
        allocated=torch.cuda.max_memory_allocated(device),
        reserved=torch.cuda.max_memory_reserved(device),
        context=_context_bytes(device),
    )


def with_device_memory(tracked: MemoryBreakdown, device: DeviceMemory | None) -> MemoryBreakdown:
    """Tracked categories completed by what the device's allocator knows of the same step.

    What it had allocated beyond the tracked tensors (kernels' workspaces) is ``unattributed``.
    """
    if device is None:
        return tracked
    beyond = max(0, device.allocated - tracked.allocated)
    return replace(
        tracked,
        unattributed=tracked.unattributed + beyond,
        reserved=device.reserved,
        context=device.context,
    )


def _context_bytes(device: torch.device) -> int | None:
    try:
        with gpu_handle(device) as (nvml, handle):
            held = process_bytes(nvml, handle)
    except Exception:  # no library, no driver, a device it does not know: nothing to be had
        return None
    return None if held is None else max(0, held - torch.cuda.memory_reserved(device))
