"""The world of ranks that torchrun started, and this one's device in it."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True, kw_only=True)
class Rank:
    """This process among the others."""

    rank: int
    world_size: int
    ranks_on_host: int
    device: torch.device


@contextmanager
def join(device_type: str, collective_timeout_s: float) -> Iterator[Rank]:
    """Meet the other ranks: NCCL between CUDA devices, Gloo between CPU processes.

    A world of one starts no process group: the baseline shall owe nothing to communication.
    """
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = _device(device_type)
    if world_size > 1:
        dist.init_process_group(
            "nccl" if device_type == "cuda" else "gloo",
            timeout=timedelta(seconds=collective_timeout_s),
            device_id=device if device_type == "cuda" else None,
        )
    if world_size > 1 and device_type == "cpu":
        # Gloo is connected on one rank before it is on all: a rank that has nothing to do and leaves
        # would close connections that others are still making.
        dist.barrier()
    yield Rank(
        rank=rank,
        world_size=world_size,
        ranks_on_host=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        device=device,
    )
    if world_size > 1:
        # What holds the group (DDP's reducer, in a reference cycle) goes before the group does:
        # freed by the interpreter, the last holder joins Gloo's thread with the interpreter lock
        # held, while that thread may be waiting for the lock to free a tensor. A rank in some
        # hundred launches would never end.
        gc.collect()
        dist.destroy_process_group()


def _device(device_type: str) -> torch.device:
    if device_type == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def gather(value: Any) -> list[Any]:
    """Every rank's ``value`` in rank order, on rank 0; empty elsewhere."""
    if not dist.is_initialized():
        return [value]
    values = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(value, values)
    return values or []
