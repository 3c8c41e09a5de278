"""Latent attention (DeepSeek-V2 and V3, arXiv 2405.04434), for which transformers has no plan.

What makes the latents of queries, and of keys and values, is whole on every rank and sees the tokens
that a rank has; what expands them into heads is cut by columns. Under sequence parallelism latents are
gathered, not hidden states, as in Megatron-Core (``multi_latent_attention.py``). The rotated part of a
key, one for all heads, comes in one message with the latent of keys and values. Of both a rank then
finds the gradient of its own heads, a summand; the summands are added up where they were gathered.
"""

from typing import Any

from torch.distributed.tensor import Placement
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle

from meshfit.run.tensor.styles import (
    OwnColumnsLinear,
    TokenwiseLinear,
    norm_style,
    summing_style,
)

LATENT_ATTENTION: dict[str, str] = {
    "self_attn.q_proj": "gathering_colwise",
    "self_attn.q_a_proj": "tokenwise",
    "self_attn.q_a_layernorm": "tokenwise_norm",
    "self_attn.q_b_proj": "gathering_colwise",
    "self_attn.kv_a_proj_with_mqa": "gathered_tokenwise",
    "self_attn.kv_a_layernorm": "summing",
    "self_attn.kv_b_proj": "own_columns",
    "self_attn.o_proj": "rowwise",
}
"""Module name inside a layer -> style. Queries are one full projection, or two around a latent."""


def has_latent_attention(config: Any) -> bool:
    """Whether keys and values of a Hugging Face config are expanded from a latent."""
    return getattr(config, "kv_lora_rank", None) is not None


def latent_style(style: str, between_blocks: Placement) -> ParallelStyle | None:
    """What ``LATENT_ATTENTION`` means by a style; None: it is no style of its own."""
    match style:
        case "gathering_colwise":
            return ColwiseParallel(input_layouts=between_blocks)
        case "tokenwise" | "gathered_tokenwise":
            return TokenwiseLinear(tokens=between_blocks, gathers=style == "gathered_tokenwise")
        case "tokenwise_norm":
            return norm_style(between_blocks)
        case "summing":
            return summing_style()
        case "own_columns":
            return OwnColumnsLinear()
    return None


def first_factor_style(style: str, between_blocks: Placement) -> ParallelStyle | None:
    """Of an adapter beside a linear of that style, how its first factor runs; None as above."""
    match style:
        case "own_columns":
            return summing_style()
        case "gathering_colwise" | "tokenwise" | "gathered_tokenwise":
            return TokenwiseLinear(tokens=between_blocks)
    return None
