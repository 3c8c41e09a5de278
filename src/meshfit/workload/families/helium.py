"""Helium: Llama whose heads fill the hidden size with a ``head_dim`` of their own."""

from meshfit.errors import InputError
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import Config
from meshfit.workload.model import ModelSpec

HELIUM = DecoderFamily(
    model_type="helium",
    defaults=DecoderSizes(
        vocab_size=48000,
        hidden_size=2560,
        intermediate_size=7040,
        num_hidden_layers=24,
        num_attention_heads=20,
        max_position_embeddings=4096,
    ),
    num_key_value_heads=20,
    head_dim=128,
    qkv_bias=Flag(key="attention_bias"),
    mlp_bias=Flag(key="mlp_bias"),
)


def read(name: str, config: Config) -> ModelSpec:
    """The model.

    Raises:
        InputError: heads do not fill the hidden size, as its output projection needs; or a key
            cannot be right.
    """
    model = HELIUM.read(name, config)
    heads, head_dim = model.attention.num_attention_heads, model.attention.head_dim
    if heads * head_dim != model.hidden_size:
        raise InputError(
            f"num_attention_heads {heads} x head_dim {head_dim} is {heads * head_dim}, but helium"
            f" needs hidden_size {model.hidden_size}"
        )
    return model
