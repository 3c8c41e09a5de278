"""StarCoder2: a plain MLP with biases, LayerNorms."""

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.sliding import one_window

_BIAS = Flag(key="use_bias", default=True)

STARCODER2 = DecoderFamily(
    model_type="starcoder2",
    defaults=DecoderSizes(
        vocab_size=49152,
        hidden_size=3072,
        intermediate_size=12288,
        num_hidden_layers=30,
        num_attention_heads=24,
        max_position_embeddings=4096,
    ),
    num_key_value_heads=2,
    tie_word_embeddings=True,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    mlp_bias=_BIAS,
    gated=False,
    norm="layer_norm",
    dropouts=("attention_dropout", "residual_dropout", "embedding_dropout"),
    windows=one_window(None),
)
