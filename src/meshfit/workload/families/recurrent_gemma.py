"""RecurrentGemma (Griffin, arXiv 2402.19427): two gated linear recurrences to one local attention."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.linear import GatedRecurrenceSpec
from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes, grouped_query_attention
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_TOKENS,
    Config,
    flag,
    optional_whole_number,
    probability,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.families.mamba import MAX_KERNEL
from meshfit.workload.model import LayerSpec, MlpSpec, ModelSpec, Names

DEFAULTS = DecoderSizes(
    vocab_size=256000,
    hidden_size=2560,
    intermediate_size=7680,
    num_hidden_layers=26,
    num_attention_heads=10,
    max_position_embeddings=8192,
)
"""Of transformers' ``RecurrentGemmaConfig``; positions as the paper trains them, as it has none."""

_KINDS = ("recurrent", "attention")


def read(name: str, config: Config) -> ModelSpec:
    """The model; gate and up projection of the MLP have half of ``intermediate_size`` each.

    Raises:
        InputError: a key cannot be right, or sizes do not divide.
    """
    own = with_own_names(config, {"sliding_window": "attention_window_size"})
    sizes = decoder_sizes(own, DEFAULTS)
    mixers: Mapping[str, Block] = {
        "recurrent": _recurrence(own, sizes),
        "attention": _attention(own, sizes),
    }
    mlp = MlpSpec(intermediate_size=sizes.intermediate_size // 2, gated=True, bias=True)
    layer_of = {
        kind: LayerSpec(
            blocks=(("temporal_block", mixer), ("mlp_block", mlp)),
            norms=("temporal_pre_norm", "channel_pre_norm"),
        )
        for kind, mixer in mixers.items()
    }
    return ModelSpec(
        name=name,
        model_type="recurrent_gemma",
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=tuple(layer_of[kind] for kind in _kinds(own, sizes.num_hidden_layers)),
        norm="rms_norm",
        tie_word_embeddings=flag(own, "tie_word_embeddings", True),
        max_position_embeddings=sizes.max_position_embeddings,
        dropout=probability(own, "attention_dropout", 0.0),
        names=Names(final_norm="model.final_norm"),
        config=config,
    )


def _kinds(config: Config, num_hidden_layers: int) -> Sequence[str]:
    """``block_types``, repeated until every layer has one."""
    pattern = config.get("block_types", ["recurrent", "recurrent", "attention"])
    known = isinstance(pattern, list) and all(kind in _KINDS for kind in pattern)
    if not known or not pattern:
        raise InputError(
            f"block_types is {shown(pattern)}; expected a list of {' and '.join(_KINDS)}"
        )
    return [pattern[i % len(pattern)] for i in range(num_hidden_layers)]


def _recurrence(config: Config, sizes: DecoderSizes) -> GatedRecurrenceSpec:
    width = optional_whole_number(config, "lru_width") or sizes.hidden_size
    if width % sizes.num_attention_heads:
        raise InputError(
            f"lru_width {width} is no multiple of num_attention_heads {sizes.num_attention_heads},"
            " the blocks of its gates"
        )
    return GatedRecurrenceSpec(
        width=width,
        num_blocks=sizes.num_attention_heads,
        conv_kernel=whole_number(config, "conv1d_width", 4, maximum=MAX_KERNEL),
    )


def _attention(config: Config, sizes: DecoderSizes) -> Block:
    kv_heads = optional_whole_number(config, "num_key_value_heads", maximum=MAX_HEADS)
    attention = grouped_query_attention(
        sizes,
        num_key_value_heads=kv_heads or sizes.num_attention_heads,
        head_dim=optional_whole_number(config, "head_dim"),
        qkv_bias=flag(config, "attention_bias", False),
        output_bias=True,
    )
    window = whole_number(config, "attention_window_size", 2048, maximum=MAX_TOKENS)
    return replace(attention, sliding_window=window)
