"""Seed-OSS: biases on q, k and v, and a bias of its own on the output."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag

SEED_OSS = DecoderFamily(
    model_type="seed_oss",
    defaults=DecoderSizes(
        vocab_size=155136,
        hidden_size=4096,
        intermediate_size=27648,
        num_hidden_layers=64,
        num_attention_heads=80,
        max_position_embeddings=524288,
    ),
    num_key_value_heads=8,
    head_dim=128,
    qkv_bias=Flag(key="attention_bias", default=True),
    output_bias=Flag(key="attention_out_bias"),
    mlp_bias=Flag(key="mlp_bias"),
    dropouts=("attention_dropout", "residual_dropout"),
)
