"""FLOPs of one operation, counted as ``workload.counts`` counts them.

2 FLOPs a multiply-add of a matmul; attention's scores and weighted sum over the keys that a causal
query sees, and twice as many in the backward. What the backward kernel computes a second time
(the scores) is left out, as is an outer product, which sums nothing.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

Counter = Callable[[tuple[Any, ...], dict[str, Any]], int]
"""Arguments of an operation -> its FLOPs."""


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """FLOPs of an operation with these arguments; 0 where it is no matmul."""
    counter = _COUNTERS.get(func.overloadpacket)
    return 0 if counter is None else counter(args, kwargs)


def _mm(args: tuple[Any, ...], _kwargs: dict[str, Any]) -> int:
    return _matmul(args[0], args[1])


def _addmm(args: tuple[Any, ...], _kwargs: dict[str, Any]) -> int:
    return _matmul(args[1], args[2])


def _matmul(left: Tensor, right: Tensor) -> int:
    """Of [..., n, k] with [..., k, m]."""
    inner = left.shape[-1]
    return 0 if inner == 1 else int(2 * left.numel() * right.shape[-1])


def _attention(is_causal_at: int) -> Counter:
    """Of a forward whose argument number ``is_causal_at`` says whether it is causal."""

    def count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        is_causal = _is_causal(args, kwargs, is_causal_at)
        return _attention_flops(*args[:3], is_causal=is_causal)

    return count


def _attention_backward(is_causal_at: int) -> Counter:
    def count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        is_causal = _is_causal(args, kwargs, is_causal_at)
        return 2 * _attention_flops(*args[1:4], is_causal=is_causal)

    return count


def _is_causal(args: tuple[Any, ...], kwargs: dict[str, Any], position: int) -> bool:
    return bool(kwargs.get("is_causal", args[position] if len(args) > position else False))


def _attention_flops(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool) -> int:
    """Of [batch, heads, length, width] tensors; a query head more than key heads is one more."""
    batch, heads, length, width = query.shape
    keys = key.shape[2]
    pairs = length * (length + 1) // 2 if is_causal and length == keys else length * keys
    return int(2 * batch * heads * pairs * (width + value.shape[3]))


_COUNTERS: dict[Any, Counter] = {
    aten.mm: _mm,
    aten.bmm: _mm,
    aten.addmm: _addmm,
    aten.baddbmm: _addmm,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention(4),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward(7),
    aten._scaled_dot_product_flash_attention: _attention(4),
    aten._scaled_dot_product_flash_attention_backward: _attention_backward(11),
    aten._scaled_dot_product_efficient_attention: _attention(6),
    aten._scaled_dot_product_efficient_attention_backward: _attention_backward(11),
}
