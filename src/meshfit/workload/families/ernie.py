"""ERNIE 4.5 (dense): one bias switch for all linear maps, tied embeddings."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag

_BIAS = Flag(key="use_bias")

ERNIE4_5 = DecoderFamily(
    model_type="ernie4_5",
    defaults=DecoderSizes(
        vocab_size=103424,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=18,
        num_attention_heads=16,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=2,
    head_dim=128,
    tie_word_embeddings=True,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    mlp_bias=_BIAS,
)
