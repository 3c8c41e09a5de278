"""EXAONE 3, InternLM 3 and IQuest-Coder: Llama with defaults of their own."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag

_BIAS = Flag(key="attention_bias")
_MLP_BIAS = Flag(key="mlp_bias")

EXAONE = DecoderFamily(
    model_type="exaone",
    defaults=DecoderSizes(
        vocab_size=102400,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=4096,
    ),
    num_key_value_heads=8,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    mlp_bias=_MLP_BIAS,
    synonyms={"num_layers": "num_hidden_layers"},
)
INTERNLM3 = DecoderFamily(
    model_type="internlm3",
    defaults=DecoderSizes(
        vocab_size=128512,
        hidden_size=4096,
        intermediate_size=10240,
        num_hidden_layers=48,
        num_attention_heads=32,
        max_position_embeddings=32768,
    ),
    num_key_value_heads=2,
    head_dim=128,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    mlp_bias=_MLP_BIAS,
)
IQUEST_CODER = DecoderFamily(
    model_type="iquestcoder",
    defaults=DecoderSizes(
        vocab_size=76800,
        hidden_size=5120,
        intermediate_size=27648,
        num_hidden_layers=80,
        num_attention_heads=40,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    mlp_bias=_MLP_BIAS,
)
