"""Llama 4: a routed and a shared expert a token, chunked attention in layers with positions."""

from collections.abc import Sequence
from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    MAX_TOKENS,
    Config,
    index_list,
    layer_kinds,
    mapping,
    optional_whole_number,
    shown,
    whole_number,
)
from meshfit.workload.families.nested import with_uncounted_towers
from meshfit.workload.model import LayerSpec, ModelSpec, equal_as_one

_KINDS = {"full_attention": "full", "chunked_attention": "chunked"}


def _moe_layers(config: Config, num_hidden_layers: int) -> Sequence[bool]:
    """By ``moe_layers``, else every ``interleave_moe_layer_step``-th."""
    if config.get("moe_layers") is not None:
        listed = index_list(config, "moe_layers", num_hidden_layers)
        return [i in listed for i in range(num_hidden_layers)]
    step = whole_number(config, "interleave_moe_layer_step", 1, maximum=MAX_LAYERS)
    return [(i + 1) % step == 0 for i in range(num_hidden_layers)]


TEXT = DecoderFamily(
    model_type="llama4_text",
    defaults=DecoderSizes(
        vocab_size=202048,
        hidden_size=5120,
        intermediate_size=8192,
        num_hidden_layers=48,
        num_attention_heads=40,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    head_dim=128,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 16),
            chosen=("num_experts_per_tok", 1),
            width=("intermediate_size", 8192),
            shared_width=("intermediate_size", 8192),
        ),
        _moe_layers,
    ),
)


def read_text(name: str, config: Config) -> ModelSpec:
    """The language model; its dense layers have ``intermediate_size_mlp``.

    Raises:
        InputError: a key cannot be right.
    """
    model = TEXT.read(name, config)
    dense = whole_number(config, "intermediate_size_mlp", 16384)
    chunk = optional_whole_number(config, "attention_chunk_size", 8192, maximum=MAX_TOKENS)
    chunked = _chunked(config, model.num_hidden_layers, chunk)
    layers = [
        _layer(layer, dense, chunk if is_chunked else None)
        for layer, is_chunked in zip(model.layers, chunked, strict=True)
    ]
    return replace(model, layers=equal_as_one(layers))


def read(name: str, config: Config) -> ModelSpec:
    """The language model of a Llama 4, as ``Llama4ForCausalLM`` is: without the vision tower.

    Raises:
        InputError: the text config is missing, or a key cannot be right.
    """
    text = mapping(config, "text_config")
    if not text:
        raise InputError("text_config is missing; it holds the sizes of the language model")
    return with_uncounted_towers(read_text(name, text), config, "llama4")


def _layer(layer: LayerSpec, dense: int, chunk: int | None) -> LayerSpec:
    attention = replace(layer.attention, chunk_size=chunk)
    feed_forward = layer.moe or replace(layer.mlp, intermediate_size=dense)
    return replace(layer, blocks=(("self_attn", attention), ("feed_forward", feed_forward)))


def _chunked(config: Config, num_hidden_layers: int, chunk: int | None) -> list[bool]:
    """By ``layer_types``; else the layers with rotary positions (``no_rope_layers`` is 1 there)."""
    every = whole_number(config, "no_rope_layer_interval", 4, maximum=MAX_LAYERS)
    rotary = config.get("no_rope_layers") or [
        int((i + 1) % every != 0) for i in range(num_hidden_layers)
    ]
    if not isinstance(rotary, list) or len(rotary) < num_hidden_layers:
        raise InputError(
            f"no_rope_layers is {shown(rotary)}; expected one 0 or 1 for each of"
            f" {num_hidden_layers} hidden layers"
        )
    usual = ["chunked" if chunk and rotates else "full" for rotates in rotary[:num_hidden_layers]]
    kinds = layer_kinds(config, num_hidden_layers, _KINDS, usual)
    return [kind == "chunked" for kind in kinds]
