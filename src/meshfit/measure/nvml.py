"""NVIDIA's driver on the GPU that a PyTorch device stands for."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from meshfit.record.environment import Unobtainable, gather


@contextmanager
def gpu_handle(device: torch.device) -> Iterator[tuple[Any, Any]]:
    """The driver's library and its handle of ``device``, found by UUID.

    CUDA_VISIBLE_DEVICES renumbers devices for CUDA, but not for the driver.

    Raises:
        ImportError, pynvml.NVMLError: no library, or the driver does not know the device.
    """
    import pynvml  # noqa: PLC0415  (loaded only where there is a GPU)

    pynvml.nvmlInit()
    try:
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        yield pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
    finally:
        pynvml.nvmlShutdown()


def read_gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    """Driver, clocks, power limit and temperature of one GPU now; what it does not tell is absent."""

    def ask(read: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        def answer() -> Any:
            try:
                return read(*arguments)
            except nvml.NVMLError as error:
                raise Unobtainable(f"NVML: {first_line(error)}") from error

        return answer

    power_limit_milliwatts = ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return gather(
        {
            "driver": ask(nvml.nvmlSystemGetDriverVersion),
            "power_limit_watts": lambda: power_limit_milliwatts() / 1000,
            "clock_sm_mhz": ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "clock_sm_max_mhz": ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            "clock_memory_mhz": ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            "temperature_celsius": ask(
                nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
        }
    )


def process_bytes(nvml: Any, handle: Any, pid: int | None = None) -> int | None:
    """Memory that a process (this one by default) holds on a GPU, all libraries included.

    None where the driver does not tell, as in a container that renumbers processes.
    """
    wanted = os.getpid() if pid is None else pid
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if process.pid == wanted and process.usedGpuMemory is not None:
            return int(process.usedGpuMemory)
    return None


def first_line(error: BaseException) -> str:
    """An error's message without what follows its first line; its type when it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
