"""Jais 2: LayerNorms, a plain MLP with squared ReLU, biases."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag

JAIS2 = DecoderFamily(
    model_type="jais2",
    defaults=DecoderSizes(
        vocab_size=150272,
        hidden_size=3328,
        intermediate_size=26624,
        num_hidden_layers=32,
        num_attention_heads=26,
        max_position_embeddings=8192,
    ),
    qkv_bias=Flag(key="attention_bias", default=True),
    output_bias=Flag(key="attention_bias", default=True),
    mlp_bias=Flag(key="mlp_bias", default=True),
    gated=False,
    norm="layer_norm",
)
