"""Hunyuan V1: norms over heads of q and k behind the rotation; experts beside a shared MLP."""

from dataclasses import replace

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag

DENSE = DecoderFamily(
    model_type="hunyuan_v1_dense",
    defaults=DecoderSizes(
        vocab_size=290943,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=2048,
    ),
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    qk_norm=True,
)
MOE = replace(
    DENSE,
    model_type="hunyuan_v1_moe",
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 1),
            chosen=("moe_topk", 1),
            width=("intermediate_size", 11008),
            shared_width=("intermediate_size", 11008),
        ),
        every_layer,
    ),
    synonyms={"num_local_experts": "num_experts", "num_experts_per_tok": "moe_topk"},
)
