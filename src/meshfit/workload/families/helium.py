"""Helium: Llama whose heads fill the hidden size with a ``head_dim`` of their own."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag

HELIUM = DecoderFamily(
    model_type="helium",
    defaults=DecoderSizes(
        vocab_size=48000,
        hidden_size=2560,
        intermediate_size=7040,
        num_hidden_layers=24,
        num_attention_heads=20,
        max_position_embeddings=4096,
    ),
    num_key_value_heads=20,
    head_dim=128,
    heads_fill_hidden=True,
    qkv_bias=Flag(key="attention_bias"),
    mlp_bias=Flag(key="mlp_bias"),
)
