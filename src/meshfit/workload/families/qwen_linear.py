"""Qwen3-Next and Qwen3.5: three layers of gated delta net to one of gated softmax attention."""

from collections.abc import Sequence
from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.blocks.linear import GatedDeltaNetSpec
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, by_sparse_step, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag, dense
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    Config,
    element_bytes,
    mapping,
    whole_number,
)
from meshfit.workload.families.linear_kinds import (
    FULL,
    LINEAR,
    attention_kinds,
    check_delta_heads,
    every_nth_full,
)
from meshfit.workload.families.mtp import with_mtp
from meshfit.workload.families.qwen_vision import vision_tower
from meshfit.workload.model import ModelSpec, equal_as_one

NEXT = DecoderFamily(
    model_type="qwen3_next",
    defaults=DecoderSizes(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=48,
        num_attention_heads=16,
        max_position_embeddings=32768,
    ),
    num_key_value_heads=2,
    head_dim=256,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    qk_norm=True,
    output_gate="with_queries",
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 512),
            chosen=("num_experts_per_tok", 10),
            width=("moe_intermediate_size", 512),
            shared_width=("shared_expert_intermediate_size", 512),
            shared_gate=True,
        ),
        by_sparse_step,
    ),
)
DENSE_TEXT = replace(
    NEXT,
    model_type="qwen3_5_text",
    defaults=DecoderSizes(
        vocab_size=248320,
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=32,
        num_attention_heads=16,
        max_position_embeddings=32768,
    ),
    num_key_value_heads=4,
    feed_forwards=dense,
)
MOE_TEXT = replace(
    NEXT,
    model_type="qwen3_5_moe_text",
    defaults=DecoderSizes(
        vocab_size=248320,
        hidden_size=2048,
        intermediate_size=512,
        num_hidden_layers=40,
        num_attention_heads=16,
        max_position_embeddings=32768,
    ),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 256),
            chosen=("num_experts_per_tok", 8),
            width=("moe_intermediate_size", 512),
            shared_width=("shared_expert_intermediate_size", 512),
            shared_gate=True,
        ),
        every_layer,
    ),
)


def read_next(name: str, config: Config) -> ModelSpec:
    """Qwen3-Next. Raises ``InputError`` on a key that cannot be right."""
    return _with_linear_layers(NEXT.read(name, config), config)


def read_dense_text(name: str, config: Config) -> ModelSpec:
    """The language model of a dense Qwen3.5. Raises ``InputError`` on a key that cannot be right."""
    return _text(DENSE_TEXT, name, config)


def read_moe_text(name: str, config: Config) -> ModelSpec:
    """The language model of a Qwen3.5 with experts. Raises ``InputError`` as above."""
    return _text(MOE_TEXT, name, config)


def read_dense(name: str, config: Config) -> ModelSpec:
    """Dense Qwen3.5, as transformers' causal language model: its vision tower is not counted.

    Raises:
        InputError: the text config is missing, or a key cannot be right.
    """
    return _with_tower(DENSE_TEXT, name, config, "qwen3_5")


def read_moe(name: str, config: Config) -> ModelSpec:
    """Qwen3.5 with experts, as ``read_dense``. Raises ``InputError`` as there."""
    return _with_tower(MOE_TEXT, name, config, "qwen3_5_moe")


def _with_tower(family: DecoderFamily, name: str, config: Config, model_type: str) -> ModelSpec:
    text = mapping(config, "text_config")
    if not text:
        raise InputError("text_config is missing; it holds the sizes of the language model")
    model = _text(family, name, text)
    vision = mapping(config, "vision_config")
    towers = (vision_tower(vision, deepstack=(), counted=False),) if vision else ()
    return replace(model, model_type=model_type, towers=towers, config=config)


def _text(family: DecoderFamily, name: str, config: Config) -> ModelSpec:
    model = _with_linear_layers(family.read(name, config), config)
    full = [layer for layer in model.layers if layer.blocks[0][0] == "self_attn"]
    return with_mtp(model, config, "mtp_num_hidden_layers", layer=full[-1] if full else None)


def _with_linear_layers(model: ModelSpec, config: Config) -> ModelSpec:
    """``model`` with a gated delta net instead of attention in its linear layers."""
    kinds = _kinds(config, model.num_hidden_layers)
    linear = _delta_net(config) if LINEAR in kinds else None
    layers = [
        layer
        if linear is None or kind == FULL
        else replace(layer, blocks=(("linear_attn", linear), layer.blocks[1]))
        for layer, kind in zip(model.layers, kinds, strict=True)
    ]
    return replace(model, layers=equal_as_one(layers))


def _kinds(config: Config, num_hidden_layers: int) -> Sequence[str]:
    every = whole_number(config, "full_attention_interval", 4, maximum=MAX_LAYERS)
    return attention_kinds(config, every_nth_full(num_hidden_layers, every))


def _delta_net(config: Config) -> GatedDeltaNetSpec:
    keys = whole_number(config, "linear_num_key_heads", 16, maximum=MAX_HEADS)
    values = whole_number(config, "linear_num_value_heads", 32, maximum=MAX_HEADS)
    check_delta_heads(keys, values)
    return GatedDeltaNetSpec(
        num_key_heads=keys,
        num_value_heads=values,
        key_head_dim=whole_number(config, "linear_key_head_dim", 128),
        value_head_dim=whole_number(config, "linear_value_head_dim", 128),
        conv_kernel=whole_number(config, "linear_conv_kernel_dim", 4, maximum=2**10),
        state_element_bytes=element_bytes(config, "mamba_ssm_dtype", "float32"),
    )
