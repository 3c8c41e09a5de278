"""Kimi Linear: three layers of Kimi delta attention to one of latent attention, and experts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.linear import KimiDeltaSpec
from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes
from meshfit.workload.families.deepseek import LatentSizes, latent_attention
from meshfit.workload.families.experts import Experts, after_first, feed_forwards
from meshfit.workload.families.keys import (
    MAX_HEADS,
    Config,
    mapping,
    probability,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.families.linear_kinds import FULL, LINEAR, attention_kinds
from meshfit.workload.families.mamba import MAX_KERNEL
from meshfit.workload.model import LayerSpec, MlpSpec, ModelSpec, equal_as_one

SYNONYMS = {
    "model_max_length": "max_position_embeddings",
    "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
    "num_experts": "num_local_experts",
}
_DEFAULTS = DecoderSizes(
    vocab_size=163840,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=27,
    num_attention_heads=32,
    max_position_embeddings=1048576,
)
_EXPERTS = Experts(
    total=("num_local_experts", 256),
    chosen=("num_experts_per_tok", 8),
    width=("moe_intermediate_size", 1024),
    shared_count=("n_shared_experts", 1),
)


def read(name: str, config: Config) -> ModelSpec:
    """The model, with the defaults of transformers' ``KimiLinearConfig``.

    The head is never tied to the embedding, whatever ``tie_word_embeddings`` says, as in its class.

    Raises:
        InputError: a key cannot be right, or the lists of layers do not cover them all.
    """
    own = with_own_names(config, SYNONYMS)
    sizes = decoder_sizes(own, _DEFAULTS)
    mlp = MlpSpec(intermediate_size=sizes.intermediate_size, gated=True)
    blocks = feed_forwards(_EXPERTS, after_first(1))(own, sizes, mlp)
    mixers: Mapping[str, Block] = {
        FULL: latent_attention(own, sizes, LatentSizes(q_lora_rank=None)),
        LINEAR: _delta(own),
    }
    kinds = _layer_kinds(own, sizes.num_hidden_layers)
    model = delta_model(
        name,
        "kimi_linear",
        own,
        sizes,
        mixers=[mixers[kind] for kind in kinds],
        feed_forwards=blocks,
    )
    return replace(model, config=config)


def delta_model(
    name: str,
    model_type: str,
    config: Config,
    sizes: DecoderSizes,
    *,
    mixers: Sequence[Block],
    feed_forwards: Sequence[Block],
) -> ModelSpec:
    """A decoder with these mixers and feed-forwards, one of each a layer; its head is its own.

    Raises:
        InputError: ``attention_dropout`` cannot be right.
    """
    return ModelSpec(
        name=name,
        model_type=model_type,
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=equal_as_one(
            LayerSpec(blocks=(("self_attn", mixer), ("mlp", feed_forward)))
            for mixer, feed_forward in zip(mixers, feed_forwards, strict=True)
        ),
        norm="rms_norm",
        tie_word_embeddings=False,
        max_position_embeddings=sizes.max_position_embeddings,
        dropout=probability(config, "attention_dropout", 0.0),
        config=config,
    )


def _delta(config: Config) -> KimiDeltaSpec:
    inner = mapping(config, "linear_attn_config")

    def size(nested: str, key: str, default: int, maximum: int) -> int:
        if nested in inner:
            return whole_number(inner, nested, default, maximum=maximum)
        return whole_number(config, key, default, maximum=maximum)

    return KimiDeltaSpec(
        num_heads=size("num_heads", "linear_num_heads", 32, MAX_HEADS),
        head_dim=size("head_dim", "linear_head_dim", 128, 2**16),
        conv_kernel=size("short_conv_kernel_size", "linear_conv_kernel_dim", 4, MAX_KERNEL),
    )


def _layer_kinds(config: Config, num_hidden_layers: int) -> Sequence[str]:
    """By ``layer_types``; else by the layers counted from 1 that ``linear_attn_config`` lists; else
    every fourth is full."""
    inner = mapping(config, "linear_attn_config")
    full, linear = inner.get("full_attn_layers"), inner.get("kda_layers")
    usual = [FULL if i and i % 4 == 0 else LINEAR for i in range(num_hidden_layers)]
    if full is not None and linear is not None:
        numbers = range(1, num_hidden_layers + 1)
        listed = isinstance(full, list) and isinstance(linear, list)
        if not listed or sorted(map(str, full + linear)) != sorted(map(str, numbers)):
            raise InputError(
                f"full_attn_layers is {shown(full)} and kda_layers {shown(linear)}; together they"
                f" must name each of the layers 1 to {num_hidden_layers} once"
            )
        usual = [FULL if number in full else LINEAR for number in numbers]
    return attention_kinds(config, usual)
