"""The GPUs of this machine as NVIDIA's driver reports them. Loads NVML only when asked."""

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU that a process started now would see."""

    name: str
    memory_bytes: int
    free_bytes: int
    nvlink: bool
    """Whether any of its NVLinks is up."""


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES lets a process see; none without a driver."""
    try:
        import pynvml  # noqa: PLC0415  (the driver's library is loaded only where it is asked for)

        pynvml.nvmlInit()
    except Exception:  # no package, no library, no driver: each means no GPU can be used
        return ()
    try:
        return tuple(_gpu(pynvml, handle) for handle in visible_handles(pynvml))
    finally:
        pynvml.nvmlShutdown()


def visible_handles(nvml: Any) -> list[Any]:
    """Handles of the GPUs that CUDA_VISIBLE_DEVICES lets a process see, in its order."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = nvml.nvmlDeviceGetCount()
    if visible is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    handles = []
    for entry in visible.split(","):
        name = entry.strip()
        if name.isdigit() and int(name) < count:
            handles.append(nvml.nvmlDeviceGetHandleByIndex(int(name)))
        elif name.startswith("GPU-"):
            handles.append(nvml.nvmlDeviceGetHandleByUUID(name))
        else:  # CUDA stops at the first entry that names no device
            break
    return handles


def _gpu(nvml: Any, handle: Any) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        name=nvml.nvmlDeviceGetName(handle),
        memory_bytes=memory.total,
        free_bytes=memory.free,
        nvlink=_has_nvlink(nvml, handle),
    )


def _has_nvlink(nvml: Any, handle: Any) -> bool:
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link):
                return True
        except nvml.NVMLError:  # the device has no such link
            return False
    return False
