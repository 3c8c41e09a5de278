"""What PyTorch and the devices add to ``record.environment``: libraries, devices, numeric modes."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend

from meshfit.measure.nvml import first_line, gpu_handle, read_gpu
from meshfit.record.environment import (
    Unobtainable,
    gather,
    host_environment,
    package_versions,
    without_home,
)

_T = TypeVar("_T")


def run_environment(
    device: torch.device,
    *,
    ranks: int | None = None,
    dtype: torch.dtype = torch.float32,
    head_dim: int = 64,
) -> dict[str, Any]:
    """Everything known about where a run is made; the structure is that of ``host_environment``.

    Args:
        device: of this rank.
        ranks: ranks on this host.
        dtype, head_dim: of the attention, whose kernel is chosen by them.
    """
    host = host_environment(ranks)
    found = gather(_facts(device, dtype, head_dim))
    absent = host.pop("absent", {}) | found.pop("absent", {})
    return host | found | ({"absent": absent} if absent else {})


def _facts(device: torch.device, dtype: torch.dtype, head_dim: int) -> dict[str, Callable[[], Any]]:
    return {
        "torch": lambda: str(torch.__version__),
        "transformers": lambda: _package("transformers"),
        "device": lambda: device.type,
        "cuda": lambda: _or_absent(torch.version.cuda, "PyTorch is built without CUDA"),
        "nccl": _nccl_version,
        "cudnn": lambda: _or_absent(
            torch.backends.cudnn.version(), "PyTorch is built without cuDNN"
        ),
        "collectives": lambda: _or_absent(
            dist.get_backend() if dist.is_initialized() else None, "one process: no process group"
        ),
        "gpu": lambda: gpu_environment(device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability,
        "threads": torch.get_num_threads,
        "threads_interop": torch.get_num_interop_threads,
        "sdpa_kernel": lambda: sdpa_kernel(device, dtype, head_dim),
        "matmul": matmul_environment,
        "deterministic": deterministic_environment,
        "allocator": lambda: allocator_environment(device),
    }


def sdpa_kernel(device: torch.device, dtype: torch.dtype, head_dim: int) -> str:
    """Kernel that scaled_dot_product_attention takes for causal attention, in lower case.

    ``flash_attention``, ``efficient_attention``, ``cudnn_attention`` or ``math``.

    Raises:
        Unobtainable: PyTorch does not tell.
    """
    query = torch.empty(1, 1, 16, head_dim, dtype=dtype, device=device)
    try:
        choice = torch._fused_sdp_choice(query, query, query, is_causal=True)
    except (AttributeError, RuntimeError) as error:
        raise Unobtainable(f"PyTorch does not tell: {first_line(error)}") from error
    return str(SDPBackend(choice).name).lower()


def matmul_environment() -> dict[str, Any]:
    """Settings that trade precision of a matmul for speed."""
    cuda = torch.backends.cuda.matmul
    return {
        "float32_precision": torch.get_float32_matmul_precision(),
        "tf32": cuda.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "bf16_reduced_precision_reduction": cuda.allow_bf16_reduced_precision_reduction,
        "fp16_reduced_precision_reduction": cuda.allow_fp16_reduced_precision_reduction,
    }


def deterministic_environment() -> dict[str, bool]:
    """Settings that trade speed for the same bits every time."""
    return {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def allocator_environment(device: torch.device) -> dict[str, Any]:
    """The CUDA caching allocator: which one, and how it is set.

    Raises:
        Unobtainable: not on CUDA.
    """
    if device.type != "cuda":
        raise Unobtainable("tensors on the CPU come from the system's allocator")
    settings = torch._C._accelerator_getAllocatorSettings()
    return {"backend": torch.cuda.get_allocator_backend(), "settings": without_home(settings)}


def gpu_environment(device: torch.device) -> dict[str, Any]:
    """The GPU of this rank: name, driver, clocks and power limit now, in MHz and watts.

    Raises:
        Unobtainable: not on CUDA.
    """
    if device.type != "cuda":
        raise Unobtainable("this rank runs on the CPU")
    properties = torch.cuda.get_device_properties(device)
    known = {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "visible": torch.cuda.device_count(),
    }
    try:
        with gpu_handle(device) as (nvml, handle):
            return known | read_gpu(nvml, handle)
    except Exception as error:  # no library, no driver, a device it does not know: each is a reason
        return known | {"absent": {"nvml": first_line(error)}}


def _nccl_version() -> str:
    if not torch.cuda.is_available() or not dist.is_nccl_available():
        raise Unobtainable("no NCCL: PyTorch has no CUDA device or is built without it")
    return ".".join(map(str, torch.cuda.nccl.version()))


def _package(name: str) -> str:
    return _or_absent(package_versions([name]).get(name), f"{name} is not installed")


def _or_absent(value: _T | None, reason: str) -> _T:
    if value is None:
        raise Unobtainable(reason)
    return value
