"""SmolLM3: every fourth layer without rotary positions, which changes no parameter."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag

SMOLLM3 = DecoderFamily(
    model_type="smollm3",
    defaults=DecoderSizes(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=11008,
        num_hidden_layers=36,
        num_attention_heads=16,
        max_position_embeddings=32768,
    ),
    num_key_value_heads=4,
    tie_word_embeddings=True,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    mlp_bias=Flag(key="mlp_bias"),
)
