"""Laguna: attention with a gate and its own number of heads in every layer, experts, a shared one."""

from collections.abc import Sequence
from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.blocks.attention import OutputGate
from meshfit.workload.families.decoder import DecoderSizes, check_heads
from meshfit.workload.families.experts import Experts, after_first, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import MAX_HEADS, Config, are_sizes, shown
from meshfit.workload.families.sliding import alternating_windows
from meshfit.workload.model import LayerSpec, ModelSpec, equal_as_one

LAGUNA = DecoderFamily(
    model_type="laguna",
    defaults=DecoderSizes(
        vocab_size=100352,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=40,
        num_attention_heads=48,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    head_dim=128,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    qk_norm=True,
    windows=alternating_windows(512, 1),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 256),
            chosen=("num_experts_per_tok", 8),
            width=("moe_intermediate_size", 512),
            shared_width=("shared_expert_intermediate_size", 512),
            balance_bias=True,
        ),
        after_first(1),
    ),
    synonyms={"num_local_experts": "num_experts"},
)


def read(name: str, config: Config) -> ModelSpec:
    """The model; ``num_attention_heads_per_layer`` may give each layer heads of its own.

    Raises:
        InputError: a key cannot be right, or a layer's heads are no multiple of key/value heads.
    """
    family = replace(LAGUNA, output_gate=_gate(config))
    model = family.read(name, config)
    layers = [
        _with_heads(layer, heads)
        for layer, heads in zip(model.layers, _heads(config, model), strict=True)
    ]
    return replace(model, layers=equal_as_one(layers))


def _gate(config: Config) -> OutputGate:
    """``gating``: one gate a head (true, ``per-head``), or one an element of the output."""
    value = config.get("gating", True)
    if not isinstance(value, bool) and value not in ("per-head", "per-element"):
        raise InputError(
            f"gating is {shown(value)}; expected true, false, 'per-head' or 'per-element'"
        )
    return "head" if value in (True, "per-head") else "element"


def _heads(config: Config, model: ModelSpec) -> Sequence[int]:
    count = model.num_hidden_layers
    stated = config.get("num_attention_heads_per_layer")
    if stated is None:
        return [model.attention.num_attention_heads] * count
    if not are_sizes(stated, count, MAX_HEADS):
        raise InputError(
            f"num_attention_heads_per_layer is {shown(stated)}; expected a number of heads for each"
            f" of {count} hidden layers"
        )
    return stated


def _with_heads(layer: LayerSpec, heads: int) -> LayerSpec:
    attention = replace(layer.attention, num_attention_heads=heads)
    check_heads(attention, "num_attention_heads_per_layer")
    return replace(layer, blocks=(("self_attn", attention), *layer.blocks[1:]))
