"""Attention of one block, forward and backward, with the log-sum-exp that merging blocks needs.

PyTorch's own operators, called below autograd: the backward of a block takes the output and the
log-sum-exp of whole rows, which autograd would not give it.

Legend: B micro-batch, N query heads, G key/value heads, S queries, T keys, D head size.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

aten = torch.ops.aten

_FLASH_TYPES = (torch.bfloat16, torch.float16)
_FLASH_WIDEST_HEAD = 256
_FLASH_HEAD_MULTIPLE = 8
_EFFICIENT_ROW_MULTIPLE = 32


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Softmax attention of some queries over some keys; N is a multiple of G.

    Attributes:
        mask: [B or 1, 1, S, T], added to the scores; None: nothing is.
        is_causal: of a square block, whose queries and keys are the same tokens.
    """

    q_BNSD: Tensor
    k_BGTD: Tensor
    v_BGTD: Tensor
    mask: Tensor | None = None
    is_causal: bool = False
    scale: float

    @property
    def num_groups(self) -> int:
        return self.k_BGTD.shape[1]

    @property
    def has_narrow_values(self) -> bool:
        """Whether values are narrower than keys, as those of latent attention are."""
        return self.v_BGTD.shape[-1] < self.k_BGTD.shape[-1]

    def with_heads(self, x_BGTD: Tensor) -> Tensor:
        """Each key head as often as query heads share it."""
        repeats = self.q_BNSD.shape[1] // self.num_groups
        return x_BGTD if repeats == 1 else x_BGTD.repeat_interleave(repeats, dim=1)

    def with_groups(self, x_BNTD: Tensor) -> Tensor:
        """The transpose of ``with_heads``."""
        if x_BNTD.shape[1] == self.num_groups:
            return x_BNTD
        return x_BNTD.unflatten(1, (self.num_groups, -1)).sum(2)


class Kernel(Protocol):
    """Solves a problem on one kind of device."""

    def forward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Output [B, N, S, D], and log-sum-exp of the scores [B, N, S] in fp32 or wider."""

    def backward(
        self, problem: Problem, grad_BNSD: Tensor, out_BNSD: Tensor, lse_BNS: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the problem adds to gradients of q, k and v; ``out`` and ``lse`` are of whole rows."""


def kernel_for(problem: Problem) -> Kernel:
    """The kernel for a problem where its tensors are."""
    q_BNSD = problem.q_BNSD
    if q_BNSD.device.type == "cpu":
        return NarrowValues(FlashOnCpu()) if problem.has_narrow_values else FlashOnCpu()
    if q_BNSD.device.type != "cuda" or q_BNSD.dtype == torch.float64:
        return Unfused()
    head_dim = q_BNSD.shape[-1]
    fits = head_dim <= _FLASH_WIDEST_HEAD and head_dim % _FLASH_HEAD_MULTIPLE == 0
    is_flash = problem.mask is None and q_BNSD.dtype in _FLASH_TYPES and fits
    if not is_flash:
        return EfficientOnCuda()
    return NarrowValues(FlashOnCuda()) if problem.has_narrow_values else FlashOnCuda()


class NarrowValues:
    """Another kernel, which takes heads of one width: values are filled up to that of keys with zeros,
    of which outputs and gradients have nothing."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def forward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        width = problem.v_BGTD.shape[-1]
        out_BNSD, lse_BNS = self._kernel.forward(self._filled(problem))
        return out_BNSD[..., :width], lse_BNS

    def backward(
        self, problem: Problem, grad_BNSD: Tensor, out_BNSD: Tensor, lse_BNS: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        width, filled = problem.v_BGTD.shape[-1], self._filled(problem)
        grad_BNSD = _wide_as_keys(problem, grad_BNSD)
        out_BNSD = _wide_as_keys(problem, out_BNSD)
        dq_BNSD, dk_BGTD, dv_BGTD = self._kernel.backward(filled, grad_BNSD, out_BNSD, lse_BNS)
        return dq_BNSD, dk_BGTD, dv_BGTD[..., :width]

    @staticmethod
    def _filled(problem: Problem) -> Problem:
        return replace(problem, v_BGTD=_wide_as_keys(problem, problem.v_BGTD))


def _wide_as_keys(problem: Problem, tensor: Tensor) -> Tensor:
    return pad(tensor, (0, problem.k_BGTD.shape[-1] - tensor.shape[-1]))


class FlashOnCpu:
    """PyTorch's flash kernel on the CPU: any floating type, grouped keys, a mask."""

    def forward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        p = problem
        return aten._scaled_dot_product_flash_attention_for_cpu(
            p.q_BNSD, p.k_BGTD, p.v_BGTD, 0.0, p.is_causal, attn_mask=p.mask, scale=p.scale
        )

    def backward(
        self, problem: Problem, grad_BNSD: Tensor, out_BNSD: Tensor, lse_BNS: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        p = problem
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_BNSD, p.q_BNSD, p.k_BGTD, p.v_BGTD, out_BNSD, lse_BNS, 0.0, p.is_causal,
            attn_mask=p.mask, scale=p.scale,
        )  # fmt: skip


class FlashOnCuda:
    """FlashAttention 2: half types, grouped keys, no mask."""

    def forward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        p = problem
        out_BNSD, lse_BNS, *_ = aten._scaled_dot_product_flash_attention(
            p.q_BNSD, p.k_BGTD, p.v_BGTD, 0.0, p.is_causal, False, scale=p.scale
        )
        return out_BNSD, lse_BNS

    def backward(
        self, problem: Problem, grad_BNSD: Tensor, out_BNSD: Tensor, lse_BNS: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        p = problem
        no_dropout = torch.empty(2, dtype=torch.uint64, device=p.q_BNSD.device)
        return aten._scaled_dot_product_flash_attention_backward(
            grad_BNSD, p.q_BNSD, p.k_BGTD, p.v_BGTD, out_BNSD, lse_BNS.contiguous(), None, None,
            p.q_BNSD.shape[2], p.k_BGTD.shape[2], 0.0, p.is_causal, no_dropout, no_dropout,
            scale=p.scale,
        )  # fmt: skip


class EfficientOnCuda:
    """The memory-efficient kernel: fp32 too, and a mask; it has no grouped keys of its own."""

    def forward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        p = problem
        k_BNTD, v_BNTD = p.with_heads(p.k_BGTD), p.with_heads(p.v_BGTD)
        out_BNSD, lse, *_ = aten._scaled_dot_product_efficient_attention(
            p.q_BNSD, k_BNTD, v_BNTD, _bias(p), True, 0.0, p.is_causal, scale=p.scale
        )
        return out_BNSD, lse[..., : p.q_BNSD.shape[2]]  # the kernel rounds the rows up

    def backward(
        self, problem: Problem, grad_BNSD: Tensor, out_BNSD: Tensor, lse_BNS: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        p = problem
        k_BNTD, v_BNTD = p.with_heads(p.k_BGTD), p.with_heads(p.v_BGTD)
        rows = pad(lse_BNS, (0, -lse_BNS.shape[2] % _EFFICIENT_ROW_MULTIPLE), value=float("inf"))
        no_dropout = torch.empty(2, dtype=torch.int64, device=p.q_BNSD.device)
        dq_BNSD, dk_BNTD, dv_BNTD, _ = aten._scaled_dot_product_efficient_attention_backward(
            grad_BNSD, p.q_BNSD, k_BNTD, v_BNTD, _bias(p), out_BNSD, rows, *no_dropout, 0.0,
            (True, True, True, False), p.is_causal, scale=p.scale,
        )  # fmt: skip
        return dq_BNSD, p.with_groups(dk_BNTD), p.with_groups(dv_BNTD)


def _bias(problem: Problem) -> Tensor | None:
    """The mask of every head."""
    if problem.mask is None:
        return None
    return problem.mask.expand(*problem.q_BNSD.shape[:3], problem.k_BGTD.shape[2])


class Unfused:
    """The formula itself, with all scores in memory: for devices and types without a kernel."""

    def forward(self, problem: Problem) -> tuple[Tensor, Tensor]:
        scores_BNST = _scores(problem)
        lse_BNS = scores_BNST.logsumexp(-1)
        weights_BNST = (scores_BNST - lse_BNS[..., None]).exp()
        v_BNTD = problem.with_heads(problem.v_BGTD).to(weights_BNST.dtype)
        return (weights_BNST @ v_BNTD).to(problem.q_BNSD.dtype), lse_BNS

    def backward(
        self, problem: Problem, grad_BNSD: Tensor, out_BNSD: Tensor, lse_BNS: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        p, wide = problem, accumulation_dtype(problem.q_BNSD)
        weights_BNST = (_scores(p) - lse_BNS[..., None]).exp()
        tensors = (p.q_BNSD, p.with_heads(p.k_BGTD), p.with_heads(p.v_BGTD), grad_BNSD, out_BNSD)
        q, k, v, grad, out = (tensor.to(wide) for tensor in tensors)
        mean_BNS1 = (grad * out).sum(-1, keepdim=True)
        dscores_BNST = p.scale * weights_BNST * (grad @ v.mT - mean_BNS1)
        dk, dv = p.with_groups(dscores_BNST.mT @ q), p.with_groups(weights_BNST.mT @ grad)
        return (dscores_BNST @ k).to(q.dtype), dk.to(p.k_BGTD.dtype), dv.to(p.v_BGTD.dtype)


def _scores(problem: Problem) -> Tensor:
    p, wide = problem, accumulation_dtype(problem.q_BNSD)
    scores_BNST = p.scale * p.q_BNSD.to(wide) @ p.with_heads(p.k_BGTD).to(wide).mT
    if p.mask is not None:
        scores_BNST = scores_BNST + p.mask
    if p.is_causal:
        later = torch.ones(scores_BNST.shape[-2:], dtype=torch.bool, device=p.q_BNSD.device).triu(1)
        scores_BNST = scores_BNST.masked_fill(later, float("-inf"))
    return scores_BNST


def accumulation_dtype(tensor: Tensor) -> torch.dtype:
    """What sums over blocks are kept in: fp32, or wider where the tensor is."""
    return torch.promote_types(tensor.dtype, torch.float32)
