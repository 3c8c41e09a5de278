"""Ring attention: keys and values pass from rank to rank while each computes on those it has.

Liu et al. (2310.01889), with two chunks of the sequence on each rank (see ``sharding``). What stays
on a rank (output, gradients of queries) is summed in fp32; gradients of keys travel, and are summed,
in the type of the keys.

Legend: B micro-batch, N query heads, G key/value heads, S tokens of this rank, D head size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshfit.measure.timeline.axes import along
from meshfit.run.context.blocks import Block, Gradients, Rows


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Keys and values, or their gradients, in one buffer, which is what is sent."""

    flat: Tensor
    shapes: tuple[torch.Size, torch.Size]

    @staticmethod
    def of(keys: Tensor, values: Tensor) -> "Pair":
        """A copy of both."""
        flat = torch.cat((keys.flatten(), values.flatten()))
        return Pair(flat=flat, shapes=(keys.shape, values.shape))

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Views of the two."""
        first, second = self.flat.split([shape.numel() for shape in self.shapes])
        return first.view(self.shapes[0]), second.view(self.shapes[1])


class Exchange:
    """A pair on its way to the next rank of the ring, and one on its way here."""

    def __init__(self, sent: Pair, group: dist.ProcessGroup) -> None:
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        self._sent = sent  # must outlive the send
        self._received = Pair(flat=torch.empty_like(sent.flat), shapes=sent.shapes)
        to, source = (dist.get_global_rank(group, (rank + step) % size) for step in (1, -1))
        with along("cp"):
            self._requests = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, sent.flat, to, group),
                    dist.P2POp(dist.irecv, self._received.flat, source, group),
                ]
            )

    def wait(self) -> Pair:
        """What came from the rank before."""
        for request in self._requests:
            request.wait()
        return self._received


def rotations(own: Pair, group: dist.ProcessGroup) -> Iterator[Pair]:
    """This rank's pair, then that of the rank before it, and so on round the ring.

    The next one is on its way while the caller works on the one it got.
    """
    size, pair = dist.get_world_size(group), own
    for step in range(size):
        coming = Exchange(pair, group) if step < size - 1 else None
        yield pair
        if coming is not None:
            pair = coming.wait()


def block_of(step: int, rank: int, length: int) -> Block:
    """What of a rank's queries sees what of the keys that have come ``step`` ranks far.

    Of two ranks, the earlier one's first chunk is before all the later one's, and its second after
    all of them: so the later rank sees the first chunk, the earlier one sees all from its second.
    """
    everything, half = slice(0, length), length // 2
    if step == 0:
        return Block(queries=everything, keys=everything, is_causal=True)
    if step <= rank:
        return Block(queries=everything, keys=slice(0, half), is_causal=False)
    return Block(queries=slice(half, length), keys=everything, is_causal=False)


class RingAttention(torch.autograd.Function):
    """Causal attention over the keys of every rank of ``group``."""

    @staticmethod
    def forward(  # noqa: PLR0917  (autograd passes by position)
        ctx: Any,
        q_BNSD: Tensor,
        k_BGSD: Tensor,
        v_BGSD: Tensor,
        group: dist.ProcessGroup,
        scale: float,
    ) -> Tensor:
        rows = Rows(q_BNSD, v_BGSD.shape[-1], scale)
        rank, length = dist.get_rank(group), q_BNSD.shape[2]
        for step, pair in enumerate(rotations(Pair.of(k_BGSD, v_BGSD), group)):
            rows.add(block_of(step, rank, length), *pair.tensors)
        out_BNSD = rows.out.to(q_BNSD.dtype)
        ctx.save_for_backward(q_BNSD, k_BGSD, v_BGSD, out_BNSD, rows.lse)
        ctx.group, ctx.scale = group, scale
        return out_BNSD

    @staticmethod
    def backward(ctx: Any, grad_BNSD: Tensor) -> tuple[Tensor | None, ...]:
        q_BNSD, k_BGSD, v_BGSD, out_BNSD, lse_BNS = ctx.saved_tensors
        group, rank, length = ctx.group, dist.get_rank(ctx.group), q_BNSD.shape[2]
        gradients = Gradients(grad_BNSD, q_BNSD, out_BNSD, lse_BNS, scale=ctx.scale)
        own: Pair | None = None
        coming: Exchange | None = None
        for step, pair in enumerate(rotations(Pair.of(k_BGSD, v_BGSD), group)):
            block = block_of(step, rank, length)
            parts = gradients.add(block, *pair.tensors)
            if own is None:
                own = Pair.of(*parts)  # these have nowhere to go
                continue
            travelling = _zeros_like(pair) if coming is None else coming.wait()
            for whole, part in zip(travelling.tensors, parts, strict=True):
                whole[:, :, block.keys] += part
            coming = Exchange(travelling, group)  # after the last step they are home
        assert own is not None and coming is not None, "a ring has two ranks or more"
        home = coming.wait()
        home.flat.add_(own.flat)
        return gradients.queries.to(q_BNSD.dtype), *home.tensors, None, None


def _zeros_like(pair: Pair) -> Pair:
    return Pair(flat=torch.zeros_like(pair.flat), shapes=pair.shapes)
