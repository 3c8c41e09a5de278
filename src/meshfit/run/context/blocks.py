"""Attention put together from blocks of queries and keys, exactly.

With o_i the output over block i alone and l_i its log-sum-exp, the output over all of them is the
sum of o_i exp(l_i - l), l = log of the sum of exp(l_i) (2112.05682; 2310.01889, section 3).

Legend: B micro-batch, N query heads, G key/value heads, S queries of this rank, T keys, D head size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from meshfit.run.context.kernels import Problem, accumulation_dtype, kernel_for


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some of a rank's queries, over some of the keys at hand.

    ``is_causal``: both are the same tokens; else each query sees each of these keys, but for what
    ``mask`` hides (see ``Problem``).
    """

    queries: slice
    keys: slice
    is_causal: bool
    mask: Tensor | None = None

    def problem(self, q_BNSD: Tensor, k_BGTD: Tensor, v_BGTD: Tensor, scale: float) -> Problem:
        """Its part of all queries and keys at hand."""
        return Problem(
            q_BNSD=q_BNSD[:, :, self.queries],
            k_BGTD=k_BGTD[:, :, self.keys],
            v_BGTD=v_BGTD[:, :, self.keys],
            mask=self.mask,
            is_causal=self.is_causal,
            scale=scale,
        )


class Rows:
    """Output of a rank's queries over what blocks were added so far.

    Attributes:
        out: [B, N, S, width of values] in fp32 or wider; ``lse``: [B, N, S], -inf where no key was seen
            yet.
    """

    def __init__(self, q_BNSD: Tensor, value_width: int, scale: float) -> None:
        dtype = accumulation_dtype(q_BNSD)
        self._q_BNSD, self._scale = q_BNSD, scale
        self.out = q_BNSD.new_zeros((*q_BNSD.shape[:3], value_width), dtype=dtype)
        self.lse = q_BNSD.new_full(q_BNSD.shape[:3], float("-inf"), dtype=dtype)

    def add(self, block: Block, k_BGTD: Tensor, v_BGTD: Tensor) -> None:
        """Let the block's queries see its keys."""
        problem = block.problem(self._q_BNSD, k_BGTD, v_BGTD, self._scale)
        part, part_lse = kernel_for(problem).forward(problem)
        out, lse = self.out[:, :, block.queries], self.lse[:, :, block.queries]
        total = torch.logaddexp(lse, part_lse)
        out.mul_((lse - total).exp()[..., None]).add_(part * (part_lse - total).exp()[..., None])
        lse.copy_(total)


class Gradients:
    """Gradients of a rank's queries, block by block; those of keys belong to whoever has the keys."""

    def __init__(
        self, grad_BNSD: Tensor, q_BNSD: Tensor, out_BNSD: Tensor, lse_BNS: Tensor, *, scale: float
    ) -> None:
        self._q_BNSD, self._scale = q_BNSD, scale
        self._rows = (grad_BNSD, out_BNSD, lse_BNS)
        self.queries = torch.zeros_like(q_BNSD, dtype=accumulation_dtype(q_BNSD))

    def add(self, block: Block, k_BGTD: Tensor, v_BGTD: Tensor) -> tuple[Tensor, Tensor]:
        """The block's gradients of its keys and values; those of its queries are kept here."""
        problem = block.problem(self._q_BNSD, k_BGTD, v_BGTD, self._scale)
        rows = (tensor[:, :, block.queries] for tensor in self._rows)
        dq, dk, dv = kernel_for(problem).backward(problem, *rows)
        self.queries[:, :, block.queries] += dq
        return dk, dv
