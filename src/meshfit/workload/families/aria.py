"""The language model of Aria: Llama with routed and shared experts."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag

ARIA_TEXT = DecoderFamily(
    model_type="aria_text",
    defaults=DecoderSizes(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=2048,
    ),
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    feed_forwards=feed_forwards(
        Experts(
            total=("moe_num_experts", 8),
            chosen=("moe_topk", 2),
            width=("intermediate_size", 4096),
            shared_count=("moe_num_shared_experts", 2),
            shared_bias=Flag(key="mlp_bias"),
        ),
        every_layer,
    ),
)
