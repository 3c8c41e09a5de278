"""Nemotron 3 and 4: LayerNorms, a plain MLP of squared ReLU."""

from meshfit.errors import InputError
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import Config
from meshfit.workload.model import ModelSpec

NEMOTRON = DecoderFamily(
    model_type="nemotron",
    defaults=DecoderSizes(
        vocab_size=256000,
        hidden_size=6144,
        intermediate_size=24576,
        num_hidden_layers=32,
        num_attention_heads=48,
        max_position_embeddings=4096,
    ),
    qkv_bias=Flag(key="attention_bias"),
    output_bias=Flag(key="attention_bias"),
    mlp_bias=Flag(key="mlp_bias"),
    gated=False,
    norm="layer_norm",
)


def read(name: str, config: Config) -> ModelSpec:
    """The model.

    Raises:
        InputError: ``num_key_value_heads`` is not stated: ``NemotronConfig`` has no default for it,
            and its modelling code fails without; or a key cannot be right.
    """
    if config.get("num_key_value_heads") is None:
        raise InputError(
            "num_key_value_heads is null, and nemotron has no default for it; state it"
            " (num_attention_heads for multi-head attention)"
        )
    return NEMOTRON.read(name, config)
