"""Ling and Ring 2.5 (``bailing_hybrid``): five layers of Kimi delta attention to one of latent
attention with a gate a head, and experts."""

from collections.abc import Mapping
from dataclasses import replace

from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.linear import KimiDeltaSpec
from meshfit.workload.families import kimi_linear
from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes
from meshfit.workload.families.deepseek import LatentSizes, latent_attention
from meshfit.workload.families.experts import Experts, after_first, feed_forwards
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    Config,
    whole_number,
    with_own_names,
)
from meshfit.workload.families.linear_kinds import (
    FULL,
    LINEAR,
    attention_kinds,
    every_nth_full,
)
from meshfit.workload.families.mamba import MAX_KERNEL
from meshfit.workload.families.mtp import with_mtp
from meshfit.workload.model import MlpSpec, ModelSpec

_SYNONYMS = {**kimi_linear.SYNONYMS, "num_mtp_layers": "num_nextn_predict_layers"}
_DEFAULTS = DecoderSizes(
    vocab_size=157184,
    hidden_size=2560,
    intermediate_size=6144,
    num_hidden_layers=42,
    num_attention_heads=32,
    max_position_embeddings=262144,
)
_EXPERTS = Experts(
    total=("num_local_experts", 512),
    chosen=("num_experts_per_tok", 8),
    width=("moe_intermediate_size", 768),
    shared_count=("n_shared_experts", 1),
)


def read(name: str, config: Config) -> ModelSpec:
    """The model, with the defaults of transformers' ``BailingHybridConfig``.

    The head is never tied to the embedding, whatever ``tie_word_embeddings`` says, as in its class.

    Raises:
        InputError: a key cannot be right.
    """
    own = with_own_names(config, _SYNONYMS)
    sizes = decoder_sizes(own, _DEFAULTS)
    mlp = MlpSpec(intermediate_size=sizes.intermediate_size, gated=True)
    blocks = feed_forwards(_EXPERTS, after_first(2))(own, sizes, mlp)
    group = whole_number(own, "layer_group_size", 6, maximum=MAX_LAYERS)
    kinds = attention_kinds(own, every_nth_full(sizes.num_hidden_layers, group))
    latent = latent_attention(own, sizes, LatentSizes(q_lora_rank=None))
    mixers: Mapping[str, Block] = {
        FULL: replace(latent, head_gate=True),
        LINEAR: _delta(own, sizes.num_attention_heads),
    }
    model = kimi_linear.delta_model(
        name,
        "bailing_hybrid",
        own,
        sizes,
        mixers=[mixers[kind] for kind in kinds],
        feed_forwards=blocks,
    )
    model = with_mtp(model, own, "num_nextn_predict_layers", default=1)
    return replace(model, config=config)


def _delta(config: Config, heads: int) -> KimiDeltaSpec:
    """A config that transformers has written holds the sizes under ``linear_*``; its ``head_dim`` is
    then that of the rotated part of latent attention."""
    head_dim = whole_number(config, "head_dim", 128)
    kernel = whole_number(config, "short_conv_kernel_size", 4, maximum=MAX_KERNEL)
    return KimiDeltaSpec(
        num_heads=whole_number(config, "linear_num_heads", heads, maximum=MAX_HEADS),
        head_dim=whole_number(config, "linear_head_dim", head_dim),
        conv_kernel=whole_number(config, "linear_conv_kernel_dim", kernel, maximum=MAX_KERNEL),
        gates="full",
    )
