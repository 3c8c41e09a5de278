"""Time of repeated work on one rank, and what all ranks make of it."""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

FEWEST, MOST = 3, 50
"""Repetitions of one measurement."""
ENOUGH_S = 0.05
"""So long a measurement is repeated, within these."""


def wait(device: torch.device) -> None:
    """Until all work given out so far is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_each(work: Callable[[], object], device: torch.device, times: int) -> float:
    """Mean seconds of one of ``times`` in a row."""
    wait(device)
    started = time.perf_counter()
    for _ in range(times):
        work()
    wait(device)
    return (time.perf_counter() - started) / times


def slowest(seconds: float, group: dist.ProcessGroup | None, device: torch.device) -> float:
    """The largest of all ranks of a group (None: of the world)."""
    if not dist.is_initialized():
        return seconds
    value = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(value, dist.ReduceOp.MAX, group=group)
    return float(value)


def repetitions(first_s: float) -> int:
    """How often to repeat what took ``first_s`` the first time."""
    return int(min(MOST, max(FEWEST, ENOUGH_S / max(first_s, 1e-9))))
