"""All-gather context parallelism: each rank gets all keys and values and keeps its own queries.

As Llama 3 was trained (2407.21783, section 3.3.2). The gathered keys are not kept: the backward
gathers them again and scatters the sums of their gradients, in the type of the keys.

Legend: W ranks, B micro-batch, N query heads, G key/value heads, S tokens of this rank, T of the whole
sequence, C of a chunk (half of S), D head size.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshfit.measure.timeline.axes import along
from meshfit.run.context.blocks import Block, Gradients, Rows


class GatheredAttention(torch.autograd.Function):
    """Causal attention over the keys of every rank of ``group``.

    ``mask`` [B or 1, 1, S, T], in place of the causal mask, is added to the scores.
    """

    @staticmethod
    def forward(  # noqa: PLR0917  (autograd passes by position)
        ctx: Any,
        q_BNSD: Tensor,
        k_BGSD: Tensor,
        v_BGSD: Tensor,
        group: dist.ProcessGroup,
        scale: float,
        mask: Tensor | None,
    ) -> Tensor:
        k_BGTD, v_BGTD = gathered(k_BGSD, group), gathered(v_BGSD, group)
        rows = Rows(q_BNSD, v_BGSD.shape[-1], scale)
        for block in blocks_of(group, q_BNSD.shape[2], mask):
            rows.add(block, k_BGTD, v_BGTD)
        out_BNSD = rows.out.to(q_BNSD.dtype)
        ctx.save_for_backward(q_BNSD, k_BGSD, v_BGSD, out_BNSD, rows.lse)
        ctx.group, ctx.scale, ctx.mask = group, scale, mask
        return out_BNSD

    @staticmethod
    def backward(ctx: Any, grad_BNSD: Tensor) -> tuple[Tensor | None, ...]:
        q_BNSD, k_BGSD, v_BGSD, out_BNSD, lse_BNS = ctx.saved_tensors
        group = ctx.group
        k_BGTD, v_BGTD = gathered(k_BGSD, group), gathered(v_BGSD, group)
        dk_BGTD, dv_BGTD = torch.zeros_like(k_BGTD), torch.zeros_like(v_BGTD)
        gradients = Gradients(grad_BNSD, q_BNSD, out_BNSD, lse_BNS, scale=ctx.scale)
        for block in blocks_of(group, q_BNSD.shape[2], ctx.mask):
            dk, dv = gradients.add(block, k_BGTD, v_BGTD)
            dk_BGTD[:, :, block.keys] += dk
            dv_BGTD[:, :, block.keys] += dv
        dq_BNSD = gradients.queries.to(q_BNSD.dtype)
        return dq_BNSD, scattered(dk_BGTD, group), scattered(dv_BGTD, group), None, None, None


def blocks_of(group: dist.ProcessGroup, length: int, mask: Tensor | None) -> Iterator[Block]:
    """For each of this rank's two chunks of queries: itself, and all keys before it.

    Under a mask, which says itself what is hidden, the two are one.
    """
    rank, size, half = dist.get_rank(group), dist.get_world_size(group), length // 2
    for index, chunk in enumerate((rank, 2 * size - 1 - rank)):
        queries = slice(index * half, (index + 1) * half)
        start, end = chunk * half, (chunk + 1) * half
        if mask is not None:
            seen = slice(0, end)
            yield Block(queries=queries, keys=seen, is_causal=False, mask=mask[:, :, queries, seen])
            continue
        yield Block(queries=queries, keys=slice(start, end), is_causal=True)
        if start:
            yield Block(queries=queries, keys=slice(0, start), is_causal=False)


def gathered(x_BGSD: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The shards of all ranks, in the order of the sequence."""
    size = dist.get_world_size(group)
    batch, *shape = x_BGSD.shape
    whole = x_BGSD.new_empty((size * batch, *shape))
    with along("cp"):
        dist.all_gather_single(whole, x_BGSD.contiguous(), group=group)
    early, late = whole.unflatten(0, (size, batch)).chunk(2, dim=3)
    chunks = torch.cat((early, late.flip(0)))
    return chunks.movedim(0, 2).flatten(2, 3)


def scattered(x_BGTD: Tensor, group: dist.ProcessGroup) -> Tensor:
    """This rank's shard of the sum over ranks: the transpose of ``gathered``."""
    size = dist.get_world_size(group)
    chunks = x_BGTD.unflatten(2, (2 * size, -1)).movedim(2, 0)
    early, late = chunks.chunk(2)
    x_WBGSD = torch.cat((early, late.flip(0)), dim=3)
    x_BGSD = x_WBGSD.new_empty(x_WBGSD.shape[1:])
    with along("cp"):
        dist.reduce_scatter_single(x_BGSD, x_WBGSD.flatten(0, 1), group=group)
    return x_BGSD
