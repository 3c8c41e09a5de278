"""What one rank's device does by itself: copies, files, and on CUDA its kernels."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention

from meshfit.measure.probe.clock import seconds_each
from meshfit.record.probe import KernelRate

COPY_BYTES = 2**28
REPEATS = 10
STORAGE_BYTES = 2**26
MATMUL_SIZES = (1024, 4096, 8192)
ATTENTION_LENGTHS = (1024, 4096, 16384)
ATTENTION_HEADS, HEAD_DIM = 32, 128


def host_to_device_bytes_per_s(device: torch.device) -> float:
    """From pinned host memory."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    seconds = _after_warm_up(lambda: target.copy_(source, non_blocking=True), device)
    return COPY_BYTES / seconds


def storage_write_bytes_per_s(folder: Path) -> float:
    """One file, until it is on the disk."""
    data = os.urandom(2**20) * (STORAGE_BYTES // 2**20)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        started = time.perf_counter()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        return len(data) / (time.perf_counter() - started)


def kernel_rates(device: torch.device) -> tuple[KernelRate, ...]:
    """Large matmuls and causal attention in 16 bits."""
    matmuls = (_matmul(device, size) for size in MATMUL_SIZES)
    attentions = (_attention(device, length) for length in ATTENTION_LENGTHS)
    return (*matmuls, *attentions)


def _matmul(device: torch.device, size: int) -> KernelRate:
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    seconds = _after_warm_up(lambda: torch.mm(left, right), device)
    return KernelRate(
        kernel="matmul", dtype="bf16", dims=(size,) * 3, flops_per_s=2 * size**3 / seconds
    )


def _attention(device: torch.device, length: int) -> KernelRate:
    """FLOPs of what lies below the diagonal."""
    shape = (1, ATTENTION_HEADS, length, HEAD_DIM)
    query, key, value = (torch.randn(shape, dtype=torch.bfloat16, device=device) for _ in range(3))
    seconds = _after_warm_up(
        lambda: scaled_dot_product_attention(query, key, value, is_causal=True), device
    )
    flops = 2 * ATTENTION_HEADS * length**2 * HEAD_DIM
    return KernelRate(
        kernel="attention",
        dtype="bf16",
        dims=(ATTENTION_HEADS, length, HEAD_DIM),
        flops_per_s=flops / seconds,
    )


def _after_warm_up(work: Callable[[], object], device: torch.device) -> float:
    work()
    return seconds_each(work, device, REPEATS)
