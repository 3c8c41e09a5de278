"""Mellum and Kolibri: Qwen3-MoE's attention; Kolibri has norms behind blocks and a shared expert."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, after_first, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.sliding import alternating_windows
from meshfit.workload.model import LLAMA_NORMS

MELLUM = DecoderFamily(
    model_type="mellum",
    defaults=DecoderSizes(
        vocab_size=98304,
        hidden_size=2304,
        intermediate_size=7168,
        num_hidden_layers=28,
        num_attention_heads=32,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=4,
    head_dim=128,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    qk_norm=True,
    windows=alternating_windows(1024, 1),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 64),
            chosen=("num_experts_per_tok", 8),
            width=("moe_intermediate_size", 896),
        ),
        after_first(0),
    ),
    synonyms={"num_experts": "num_local_experts"},
)
KOLIBRI = DecoderFamily(
    model_type="kolibri1",
    defaults=DecoderSizes(
        vocab_size=128000,
        hidden_size=2560,
        intermediate_size=512,
        num_hidden_layers=50,
        num_attention_heads=48,
        max_position_embeddings=262144,
    ),
    num_key_value_heads=4,
    head_dim=128,
    qk_norm=True,
    norms=(*LLAMA_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
    windows=alternating_windows(513, 5),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 384),
            chosen=("num_experts_per_tok", 6),
            width=("moe_intermediate_size", 512),
            shared_width=("shared_expert_intermediate_size", 512),
        ),
        every_layer,
    ),
    synonyms={"num_experts": "num_local_experts"},
)
