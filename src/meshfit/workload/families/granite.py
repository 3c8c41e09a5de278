"""Granite: Llama with scalar multipliers, which are no parameters; dense and with experts."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag

_SIZES = DecoderSizes(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
)
_BIAS = Flag(key="attention_bias")

GRANITE = DecoderFamily(
    model_type="granite",
    defaults=_SIZES,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    mlp_bias=Flag(key="mlp_bias"),
)
GRANITE_MOE = DecoderFamily(
    model_type="granitemoe",
    defaults=_SIZES,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 8),
            chosen=("num_experts_per_tok", 2),
            width=("intermediate_size", 11008),
        ),
        every_layer,
    ),
)
GRANITE_MOE_SHARED = DecoderFamily(
    model_type="granitemoeshared",
    defaults=_SIZES,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 8),
            chosen=("num_experts_per_tok", 2),
            width=("intermediate_size", 11008),
            shared_width=("shared_intermediate_size", 0),
        ),
        every_layer,
    ),
)
