"""Cohere: attention and MLP read one norm in parallel; a LayerNorm without bias."""

from collections.abc import Sequence
from dataclasses import replace

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, after_first, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    MAX_TOKENS,
    Config,
    optional_whole_number,
    whole_number,
)
from meshfit.workload.families.sliding import FULL, SLIDING, alternating_windows, windows_by_kind
from meshfit.workload.model import ModelSpec

_SIZES = DecoderSizes(
    vocab_size=256000,
    hidden_size=8192,
    intermediate_size=22528,
    num_hidden_layers=40,
    num_attention_heads=64,
    max_position_embeddings=8192,
)

COHERE = DecoderFamily(
    model_type="cohere",
    defaults=_SIZES,
    tie_word_embeddings=True,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    qk_norm=Flag(key="use_qk_norm"),
    qk_norm_over="all_heads",
    norm="layer_norm",
    norm_vectors=1,
    norms=("input_layernorm",),
    parallel=True,
)
COHERE2 = DecoderFamily(
    model_type="cohere2",
    defaults=_SIZES,
    tie_word_embeddings=True,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    norm="layer_norm",
    norm_vectors=1,
    norms=("input_layernorm",),
    parallel=True,
    windows=alternating_windows(4096, 4, pattern_key="sliding_window_pattern"),
)


def _moe_windows(config: Config, num_hidden_layers: int) -> Sequence[int | None]:
    """As in Cohere 2, but that dense layers in front follow a pattern of their own."""
    window = optional_whole_number(config, "sliding_window", 4096, maximum=MAX_TOKENS)
    every = whole_number(config, "sliding_window_pattern", 4, maximum=MAX_LAYERS)
    prefix_every = whole_number(
        config, "prefix_dense_sliding_window_pattern", 1, maximum=MAX_LAYERS
    )
    dense = whole_number(config, "first_k_dense_replace", 0, minimum=0, maximum=MAX_LAYERS)
    prefix = [(i + 1) % prefix_every == 0 for i in range(min(dense, num_hidden_layers))]
    rest = [(i + 1) % every == 0 for i in range(num_hidden_layers - len(prefix))]
    usual = [FULL if sees_all else SLIDING for sees_all in prefix + rest]
    return windows_by_kind(config, usual, window)


COHERE2_MOE = replace(
    COHERE2,
    model_type="cohere2_moe",
    head_dim=128,
    windows=_moe_windows,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 8),
            chosen=("num_experts_per_tok", 2),
            width=("expert_intermediate_size", 22528),
            shared_count=("num_shared_experts", 0),
        ),
        after_first(0),
    ),
    synonyms={"num_local_experts": "num_experts"},
)


def read_moe(name: str, config: Config) -> ModelSpec:
    """Cohere 2 with experts of ``intermediate_size``; dense layers in front have a size of their own.

    Raises:
        InputError: a key cannot be right.
    """
    width = whole_number(config, "intermediate_size", COHERE2.defaults.intermediate_size)
    dense = optional_whole_number(config, "prefix_dense_intermediate_size") or width
    sized = {**config, "expert_intermediate_size": width, "intermediate_size": dense}
    return replace(COHERE2_MOE.read(name, sized), config=config)
