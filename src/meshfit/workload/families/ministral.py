"""Ministral: Mistral with windows in some layers (2410), or with none (Ministral 3)."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily
from meshfit.workload.families.sliding import one_window

MINISTRAL3 = DecoderFamily(
    model_type="ministral3",
    defaults=DecoderSizes(
        vocab_size=131072,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=34,
        num_attention_heads=32,
        max_position_embeddings=262144,
    ),
    num_key_value_heads=8,
    head_dim=128,
    windows=one_window(None),
)
