"""Qwen2-MoE and Qwen3-MoE: experts in every ``decoder_sparse_step``-th layer."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, by_sparse_step, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    MAX_TOKENS,
    Config,
    flag,
    layer_kinds,
    optional_whole_number,
    whole_number,
)
from meshfit.workload.families.sliding import FULL, KINDS, SLIDING


def _windows2(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
    """Qwen2-MoE: with ``use_sliding_window`` every other one of the first ``max_window_layers``."""
    enabled = flag(config, "use_sliding_window", False)
    window = optional_whole_number(
        config, "sliding_window", 4096, minimum=int(enabled), maximum=MAX_TOKENS
    )
    last = whole_number(config, "max_window_layers", 28, minimum=0, maximum=MAX_LAYERS)
    usual = [
        SLIDING if enabled and i % 2 == 0 and i < last else FULL for i in range(num_hidden_layers)
    ]
    kinds = layer_kinds(config, num_hidden_layers, KINDS, usual)
    return tuple(window if kind == SLIDING and enabled else None for kind in kinds)


def _windows3(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
    """Qwen3-MoE: with ``use_sliding_window`` every layer."""
    enabled = flag(config, "use_sliding_window", False)
    window = optional_whole_number(
        config, "sliding_window", 4096, minimum=int(enabled), maximum=MAX_TOKENS
    )
    return (window if enabled else None,) * num_hidden_layers


QWEN2_MOE = DecoderFamily(
    model_type="qwen2_moe",
    defaults=DecoderSizes(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=24,
        num_attention_heads=16,
        max_position_embeddings=32768,
    ),
    num_key_value_heads=16,
    qkv_bias=Flag(key="qkv_bias", default=True),
    windows=_windows2,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 60),
            chosen=("num_experts_per_tok", 4),
            width=("moe_intermediate_size", 1408),
            shared_width=("shared_expert_intermediate_size", 5632),
            shared_gate=True,
        ),
        by_sparse_step,
    ),
)
QWEN3_MOE = DecoderFamily(
    model_type="qwen3_moe",
    defaults=DecoderSizes(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=24,
        num_attention_heads=32,
        max_position_embeddings=32768,
    ),
    num_key_value_heads=4,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    qk_norm=True,
    windows=_windows3,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 128),
            chosen=("num_experts_per_tok", 8),
            width=("moe_intermediate_size", 768),
        ),
        by_sparse_step,
    ),
    synonyms={"num_local_experts": "num_experts"},
)
