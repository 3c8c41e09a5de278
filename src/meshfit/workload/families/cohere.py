"""Cohere: attention and MLP read one norm in parallel; a LayerNorm without bias."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.sliding import alternating_windows

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
