"""OLMo 1 to 3, OLMoE and FlexOlmo: from norms without parameters to norms behind every block."""

from dataclasses import replace

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.sliding import alternating_windows

_BIAS = Flag(key="attention_bias")
_SIZES = DecoderSizes(
    vocab_size=50304,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
)

OLMO = DecoderFamily(
    model_type="olmo",
    defaults=_SIZES,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    norm="layer_norm",
    norm_vectors=0,
)
OLMO2 = DecoderFamily(
    model_type="olmo2",
    defaults=_SIZES,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    qk_norm=True,
    qk_norm_over="all_heads",
    norms=("post_attention_layernorm", "post_feedforward_layernorm"),
)
OLMO3 = replace(OLMO2, model_type="olmo3", windows=alternating_windows(4096, 4))
OLMOE = DecoderFamily(
    model_type="olmoe",
    defaults=DecoderSizes(
        vocab_size=50304,
        hidden_size=2048,
        intermediate_size=2048,
        num_hidden_layers=16,
        num_attention_heads=16,
        max_position_embeddings=4096,
    ),
    heads_fill_hidden=True,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    qk_norm=True,
    qk_norm_over="all_heads",
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 64),
            chosen=("num_experts_per_tok", 8),
            width=("intermediate_size", 2048),
        ),
        every_layer,
    ),
    synonyms={"num_local_experts": "num_experts"},
)
FLEX_OLMO = replace(
    OLMO2,
    model_type="flex_olmo",
    defaults=replace(_SIZES, vocab_size=100352, max_position_embeddings=4096),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 7),
            chosen=("num_experts_per_tok", 5),
            width=("intermediate_size", 11008),
        ),
        every_layer,
    ),
    synonyms={"num_local_experts": "num_experts"},
)
