"""What engines pad so that tensor parallelism can cut it.

All functions take plain ints or integer arrays.
"""

from dataclasses import dataclass
from typing import Any

Count = Any
"""A plain int, or an integer array."""


def padded_size(size: Count, multiple: Count) -> Count:
    """The smallest multiple of ``multiple`` that is not below ``size``; a multiple stays as it is."""
    return -(-size // multiple) * multiple


def padded_vocabulary(vocab_size: Count, tp: Count, multiple: Count, per_rank: Count) -> Count:
    """Rows of embedding and head as an engine builds them.

    ``multiple`` is of the whole vocabulary (vLLM, SGLang: 64), or with ``per_rank`` of each
    tensor-parallel rank's part (Megatron-Core: ``--make-vocab-size-divisible-by`` x tp, 128). What
    is padded already is left alone, so a global size may be padded again.
    """
    return padded_size(vocab_size, multiple * (1 + (tp - 1) * per_rank))


@dataclass(frozen=True, kw_only=True)
class PaddedHeads:
    """Heads after padding, of the whole model."""

    num_attention_heads: int
    num_key_value_heads: int


def padded_heads(num_attention_heads: int, num_key_value_heads: int, num_ranks: int) -> PaddedHeads:
    """Heads that divide over ``num_ranks`` with as many queries to a key/value head as before.

    Key/value heads are padded first and queries follow: padding each alone breaks the groups (28
    and 7 heads over 2 ranks are 32 and 8, not 28 and 8). ``num_key_value_heads`` must divide
    ``num_attention_heads``.
    """
    key_value = padded_size(num_key_value_heads, num_ranks)
    queries_each = num_attention_heads // num_key_value_heads
    return PaddedHeads(num_attention_heads=key_value * queries_each, num_key_value_heads=key_value)
