"""Phi 1 to 4, and Phi-3.5-MoE."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.sliding import one_window

PHI = DecoderFamily(
    model_type="phi",
    defaults=DecoderSizes(
        vocab_size=51200,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=24,
        num_attention_heads=32,
        max_position_embeddings=2048,
    ),
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    head_bias=True,
    gated=False,
    qk_norm=Flag(key="qk_layernorm"),
    qk_norm_vectors=2,
    norm="layer_norm",
    norms=("input_layernorm",),
    parallel=True,
    dropouts=("attention_dropout", "embd_pdrop", "resid_pdrop"),
)
PHI3 = DecoderFamily(
    model_type="phi3",
    defaults=DecoderSizes(
        vocab_size=32064,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=4096,
    ),
    dropouts=("attention_dropout", "embd_pdrop", "resid_pdrop"),
    windows=one_window(None),
)
PHI_MOE = DecoderFamily(
    model_type="phimoe",
    defaults=DecoderSizes(
        vocab_size=32064,
        hidden_size=4096,
        intermediate_size=6400,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    head_bias=Flag(key="lm_head_bias"),
    norm="layer_norm",
    windows=one_window(None),
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 16),
            chosen=("num_experts_per_tok", 2),
            width=("intermediate_size", 6400),
        ),
        every_layer,
    ),
)
