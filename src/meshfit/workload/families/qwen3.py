"""Qwen3 (dense): a norm over each head of q and k, and a ``head_dim`` of its own."""

from meshfit.workload.families.decoder import (
    DecoderSizes,
    decoder_sizes,
    grouped_query_attention,
    rotary_decoder,
)
from meshfit.workload.families.keys import Config, flag, optional_whole_number, whole_number
from meshfit.workload.families.sliding import windows_of_layers
from meshfit.workload.model import ModelSpec

DEFAULTS = DecoderSizes(
    vocab_size=151936,
    hidden_size=4096,
    intermediate_size=22016,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=32768,
)
"""Of transformers' ``Qwen3Config``."""


def read(name: str, config: Config) -> ModelSpec:
    """The model. Raises ``InputError`` on a key that ``Qwen3Config`` would not take."""
    sizes = decoder_sizes(config, DEFAULTS)
    attention_bias = flag(config, "attention_bias", False)
    attention = grouped_query_attention(
        sizes,
        num_key_value_heads=optional_whole_number(config, "num_key_value_heads", 32)
        or sizes.num_attention_heads,
        head_dim=whole_number(config, "head_dim", 128),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
    )
    return rotary_decoder(
        name,
        config,
        model_type="qwen3",
        sizes=sizes,
        attention=attention,
        windows=windows_of_layers(config, sizes.num_hidden_layers),
    )
