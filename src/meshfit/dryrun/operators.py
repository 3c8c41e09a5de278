"""Operators that save other tensors on CUDA than on the CPU, and what stands for them.

Fake tensors are on the CPU (see ``program.DEVICE``), so where the job's cluster has GPUs the
operators of the CPU are replaced by those that PyTorch would choose there. Which tensors are kept
for the backward, and how large its results are, is then as on CUDA.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten

_FLASH_TYPES = (torch.bfloat16, torch.float16)
_FLASH_WIDEST_HEAD = 256
_FLASH_HEAD_MULTIPLE = 8


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """One operator of the CPU, what stands for it, and when."""

    cpu: str
    cuda: str
    when: str


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        cpu="aten::_scaled_dot_product_flash_attention_for_cpu",
        cuda="aten::_scaled_dot_product_flash_attention",
        when="bf16 or fp16, no mask, head_dim at most 256",
    ),
    Replacement(
        cpu="aten::_scaled_dot_product_flash_attention_for_cpu",
        cuda="aten::_scaled_dot_product_efficient_attention",
        when="fp32 or a mask, as many key heads as query heads",
    ),
    Replacement(
        cpu="aten::_scaled_dot_product_flash_attention_for_cpu",
        cuda="aten::_scaled_dot_product_attention_math",
        when="fp32 or a mask, grouped keys",
    ),
)
"""PyTorch's own choice in the same order, cuDNN left out."""

LEFT_OUT: tuple[str, ...] = (
    "memory inside one kernel (attention's fp32 accumulators, multi-tensor buffers)",
    "cuBLAS workspaces",
    "CUDA context, NCCL buffers",
    "streams: what FSDP2 gathers on a side stream is freed as if there were one stream",
    "DDP's buckets after PyTorch has laid them out anew, once, by the order of gradients",
    "autocast lists that differ (CUDA runs a few reductions in fp32 that the CPU does not)",
)
"""What a dry run does not see of a step on CUDA."""


@contextmanager
def cuda_operators() -> Iterator[None]:
    """Inside, attention runs through the operators of ``REPLACEMENTS``."""
    original = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original


def _attention(  # noqa: PLR0917  (PyTorch's own signature)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``scaled_dot_product_attention`` as PyTorch dispatches it on CUDA."""
    query, key, value = (_autocast(tensor) for tensor in (query, key, value))
    if attn_mask is None and query.dtype in _FLASH_TYPES and _flash_takes(query.shape[-1]):
        flash = aten._scaled_dot_product_flash_attention.default
        return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if key.shape[1] == query.shape[1]:
        bias = None if attn_mask is None else _as_bias(attn_mask, query, key)
        efficient = aten._scaled_dot_product_efficient_attention.default
        return efficient(query, key, value, bias, True, dropout_p, is_causal, scale=scale)[0]
    return aten._scaled_dot_product_attention_math.default(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def _flash_takes(head_dim: int) -> bool:
    return head_dim <= _FLASH_WIDEST_HEAD and head_dim % _FLASH_HEAD_MULTIPLE == 0


def _as_bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask as the kernel takes it: added to the scores, one for each head."""
    bias = mask
    if mask.dtype == torch.bool:
        bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, float("-inf"))
    return bias.expand(*query.shape[:3], key.shape[2])


def _autocast(tensor: Tensor) -> Tensor:
    """``tensor`` as autocast would hand it to attention."""
    if not torch.is_autocast_enabled(tensor.device.type):
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))
