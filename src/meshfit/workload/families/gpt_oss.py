"""gpt-oss: learned sinks, biases everywhere but in norms, windows in every other layer."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.sliding import alternating_windows

GPT_OSS = DecoderFamily(
    model_type="gpt_oss",
    defaults=DecoderSizes(
        vocab_size=201088,
        hidden_size=2880,
        intermediate_size=2880,
        num_hidden_layers=36,
        num_attention_heads=64,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    head_dim=64,
    qkv_bias=Flag(key="attention_bias", default=True),
    output_bias=Flag(key="attention_bias", default=True),
    sinks=True,
    windows=alternating_windows(128, 2),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 128),
            chosen=("num_experts_per_tok", 4),
            width=("intermediate_size", 2880),
            bias=True,
            router_bias=True,
        ),
        every_layer,
    ),
    synonyms={"num_experts": "num_local_experts"},
)
