"""Collectives on buffers of a given size, as nccl-tests counts it."""

from collections.abc import Callable

import torch
import torch.distributed as dist

Run = Callable[[], None]


def collective(
    name: str, size_bytes: int, group: dist.ProcessGroup, device: torch.device
) -> Run | None:
    """What carries out one collective; None where its buffer is smaller than its ranks.

    The whole buffer has ``size_bytes``, rounded down to whole elements a rank: for all_gather that
    of all ranks together, for all_to_all what one rank sends in all.
    """
    ranks = dist.get_world_size(group)
    share = size_bytes // 4 // ranks
    if share == 0:
        return None
    whole = torch.ones(share * ranks, device=device)
    part = torch.ones(share, device=device)
    match name:
        case "all_reduce":
            return lambda: _done(dist.all_reduce(whole, group=group))
        case "all_gather":
            return lambda: _done(dist.all_gather_into_tensor(whole, part, group=group))
        case "reduce_scatter":
            return lambda: _done(dist.reduce_scatter_tensor(part, whole, group=group))
        case "all_to_all":
            received = torch.empty_like(whole)
            return lambda: _done(dist.all_to_all_single(received, whole, group=group))
        case "send_recv":
            return lambda: _ring(whole, torch.empty_like(whole), group)
    raise ValueError(name)


def _done(work: object) -> None:
    """Collectives without ``async_op`` are over, or queued on the device, when they return."""


def _ring(sent: torch.Tensor, received: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Every rank sends to the next and receives from the one before, as sendrecv_perf does."""
    ranks, own = dist.get_world_size(group), dist.get_rank(group)
    following = dist.get_global_rank(group, (own + 1) % ranks)
    before = dist.get_global_rank(group, (own - 1) % ranks)
    operations = [
        dist.P2POp(dist.isend, sent, following, group),
        dist.P2POp(dist.irecv, received, before, group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
