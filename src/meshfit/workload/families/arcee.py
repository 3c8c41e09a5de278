"""Arcee: Llama with a plain MLP of squared ReLU."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag

ARCEE = DecoderFamily(
    model_type="arcee",
    defaults=DecoderSizes(
        vocab_size=32000,
        hidden_size=2560,
        intermediate_size=18432,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=4096,
    ),
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    mlp_bias=Flag(key="mlp_bias"),
    gated=False,
)
