"""All-to-all context parallelism: for attention alone, ranks trade tokens for heads.

Jacobs et al. (DeepSpeed-Ulysses, 2309.14509). Around attention a rank has some tokens and every
head; inside, every token of the ranks of ``group`` and some heads.

Legend: W ranks of the group, B micro-batch, H heads, S tokens of this rank, D head size.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshfit.measure.timeline.axes import along


class TokensForHeads(torch.autograd.Function):
    """[B, H, S, D] -> [B, H / W, W S, D]: gives away other ranks' heads, gets their tokens."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _tokens_for_heads(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _heads_for_tokens(grad, ctx.group), None


class HeadsForTokens(torch.autograd.Function):
    """The inverse, and so the transpose, of ``TokensForHeads``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _heads_for_tokens(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _tokens_for_heads(grad, ctx.group), None


def _tokens_for_heads(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Message w holds the heads of rank w; afterwards, the tokens of rank w."""
    by_rank = x.unflatten(1, (dist.get_world_size(group), -1)).movedim(1, 0)
    return _exchanged(by_rank, group).movedim(0, 2).flatten(2, 3)


def _heads_for_tokens(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The heads of a token side by side in memory, as the layer's next matmul reads them."""
    by_rank = x.unflatten(2, (dist.get_world_size(group), -1)).movedim(2, 0)
    x_WBHSD = _exchanged(by_rank, group)
    return x_WBHSD.permute(1, 3, 0, 2, 4).flatten(2, 3).transpose(1, 2)


def _exchanged(by_rank: Tensor, group: dist.ProcessGroup) -> Tensor:
    """One part to each rank, and one from each."""
    sent = by_rank.contiguous()
    received = torch.empty_like(sent)
    with along("cp"):
        dist.all_to_all_single(received, sent, group=group)
    return received
