"""BitNet: norms inside attention and MLP, in front of their last projection."""

from dataclasses import replace

from meshfit.workload.blocks.tensor import norm
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import Config
from meshfit.workload.model import ModelSpec

BITNET = DecoderFamily(
    model_type="bitnet",
    defaults=DecoderSizes(
        vocab_size=128256,
        hidden_size=2560,
        intermediate_size=6912,
        num_hidden_layers=30,
        num_attention_heads=20,
        max_position_embeddings=2048,
    ),
    num_key_value_heads=5,
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
)


def read(name: str, config: Config) -> ModelSpec:
    """The model. Weights of 1.58 bits are a matter of quantisation, not of their number.

    Raises:
        InputError: a key cannot be right.
    """
    model = BITNET.read(name, config)
    extra = (
        *norm("self_attn.attn_sub_norm", model.hidden_size),
        *norm("mlp.ffn_sub_norm", model.mlp.intermediate_size),
    )
    layer = replace(model.layers[0], extra=extra)
    return replace(model, layers=(layer,) * model.num_hidden_layers)
