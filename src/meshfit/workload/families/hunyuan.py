"""Hunyuan V1 and V3: norms over heads of q and k; experts beside a shared MLP."""

from dataclasses import replace

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, after_first, every_layer, feed_forwards
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
V3 = DecoderFamily(
    model_type="hy_v3",
    defaults=DecoderSizes(
        vocab_size=120832,
        hidden_size=4096,
        intermediate_size=13312,
        num_hidden_layers=80,
        num_attention_heads=64,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    head_dim=128,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    mlp_bias=Flag(key="mlp_bias"),
    qk_norm=True,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 192),
            chosen=("num_experts_per_tok", 8),
            width=("moe_intermediate_size", 1536),
            shared_count=("num_shared_experts", 1),
            shared_bias=Flag(key="mlp_bias"),
        ),
        after_first(1),
    ),
    synonyms={"num_local_experts": "num_experts"},
)
