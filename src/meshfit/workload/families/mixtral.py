"""Mixtral: Mistral with eight experts instead of the MLP."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily
from meshfit.workload.families.sliding import one_window

MIXTRAL = DecoderFamily(
    model_type="mixtral",
    defaults=DecoderSizes(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    windows=one_window(None),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 8),
            chosen=("num_experts_per_tok", 2),
            width=("intermediate_size", 14336),
        ),
        every_layer,
    ),
    synonyms={"num_experts": "num_local_experts"},
)
