"""EXAONE 4: norms over each head of q and k, and behind (dense) or before (experts) blocks."""

from dataclasses import replace

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, after_first, feed_forwards
from meshfit.workload.families.family import DecoderFamily
from meshfit.workload.families.sliding import alternating_windows
from meshfit.workload.model import LLAMA_NORMS

EXAONE4 = DecoderFamily(
    model_type="exaone4",
    defaults=DecoderSizes(
        vocab_size=102400,
        hidden_size=4096,
        intermediate_size=16384,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=2048,
    ),
    num_key_value_heads=32,
    qk_norm=True,
    norms=("post_attention_layernorm", "post_feedforward_layernorm"),
    windows=alternating_windows(4096, 4, pattern_key="sliding_window_pattern"),
)
EXAONE_MOE = replace(
    EXAONE4,
    model_type="exaone_moe",
    norms=LLAMA_NORMS,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_experts", 64),
            chosen=("num_experts_per_tok", 8),
            width=("moe_intermediate_size", 1024),
            shared_count=("num_shared_experts", 1),
        ),
        after_first(1),
    ),
)
