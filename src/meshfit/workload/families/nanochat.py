"""nanochat: norms without parameters, a plain MLP with squared ReLU, no biases."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag

NANOCHAT = DecoderFamily(
    model_type="nanochat",
    defaults=DecoderSizes(
        vocab_size=50304,
        hidden_size=768,
        intermediate_size=8192,
        num_hidden_layers=12,
        num_attention_heads=6,
        max_position_embeddings=2048,
    ),
    num_key_value_heads=6,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    gated=False,
    norm_vectors=0,
)
