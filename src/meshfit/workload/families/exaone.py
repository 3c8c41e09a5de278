"""EXAONE 4: norms behind attention and MLP, and over each head of q and k."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily
from meshfit.workload.families.sliding import alternating_windows

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
