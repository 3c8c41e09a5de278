"""GLM 4: biases on q, k and v; the newer 0414 models have four norms a layer."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.model import LLAMA_NORMS

_SIZES = DecoderSizes(
    vocab_size=151552,
    hidden_size=4096,
    intermediate_size=13696,
    num_hidden_layers=40,
    num_attention_heads=32,
    max_position_embeddings=131072,
)

GLM = DecoderFamily(
    model_type="glm",
    defaults=_SIZES,
    num_key_value_heads=2,
    head_dim=128,
    qkv_bias=Flag(key="attention_bias", default=True),
)
GLM4 = DecoderFamily(
    model_type="glm4",
    defaults=_SIZES,
    num_key_value_heads=2,
    head_dim=128,
    qkv_bias=Flag(key="attention_bias", default=True),
    norms=(*LLAMA_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
)
