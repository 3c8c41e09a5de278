"""MiMo: Qwen2 with heads for multi-token prediction; MiMo-V2-Flash: experts, windows with sinks."""

from collections.abc import Sequence
from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.families import qwen2
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, after_first, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import (
    MAX_TOKENS,
    Config,
    optional_whole_number,
    whole_number,
)
from meshfit.workload.families.mtp import with_mtp
from meshfit.workload.families.sliding import FULL, SLIDING, windows_by_kind
from meshfit.workload.model import LayerSpec, ModelSpec


def read(name: str, config: Config) -> ModelSpec:
    """MiMo; each head for multi-token prediction is one more of its layers.

    Raises:
        InputError: a key cannot be right.
    """
    model = replace(qwen2.read(name, config), model_type="mimo")
    return with_mtp(model, config, "num_nextn_predict_layers")


def _windows(config: Config, num_hidden_layers: int) -> Sequence[int | None]:
    """All but the first and every sixth layer; ``sliding_window_size`` leaves the query out."""
    window = whole_number(config, "sliding_window", 129, maximum=MAX_TOKENS)
    before = optional_whole_number(config, "sliding_window_size", maximum=MAX_TOKENS - 1)
    window = window if before is None else before + 1
    usual = [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(num_hidden_layers)]
    return windows_by_kind(config, usual, window)


V2_FLASH = DecoderFamily(
    model_type="mimo_v2_flash",
    defaults=DecoderSizes(
        vocab_size=152576,
        hidden_size=4096,
        intermediate_size=16384,
        num_hidden_layers=48,
        num_attention_heads=64,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=4,
    head_dim=192,
    qkv_bias=Flag(key="attention_bias"),
    windows=_windows,
    feed_forwards=feed_forwards(
        Experts(
            total=("n_routed_experts", 256),
            chosen=("num_experts_per_tok", 8),
            width=("moe_intermediate_size", 2048),
        ),
        after_first(1),
    ),
    synonyms={"num_local_experts": "n_routed_experts"},
)


def read_v2_flash(name: str, config: Config) -> ModelSpec:
    """MiMo-V2-Flash; layers with a window have twice the key/value heads, and sinks.

    Raises:
        InputError: a key cannot be right.
    """
    model = V2_FLASH.read(name, config)
    value_dim = whole_number(config, "v_head_dim", 128)
    same: dict[LayerSpec, LayerSpec] = {}
    for layer in set(model.layers):
        attention = replace(layer.attention, value_head_dim=value_dim)
        if attention.sliding_window is not None:
            doubled = 2 * attention.num_key_value_heads
            if attention.num_attention_heads % doubled:
                raise InputError(
                    f"num_attention_heads {attention.num_attention_heads} is no multiple of"
                    f" {doubled}, the key/value heads of layers with a window"
                )
            attention = replace(attention, num_key_value_heads=doubled, sinks=True)
        same[layer] = replace(layer, blocks=(("self_attn", attention), layer.blocks[1]))
    return replace(model, layers=tuple(same[layer] for layer in model.layers))
