"""Qwen2 and Qwen2.5: always biases on q, k and v, never on the output."""

from meshfit.workload.families.decoder import (
    DecoderSizes,
    decoder_sizes,
    grouped_query_attention,
    rotary_decoder,
)
from meshfit.workload.families.keys import Config, optional_whole_number
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
"""Of transformers' ``Qwen2Config``."""


def read(name: str, config: Config) -> ModelSpec:
    """The model. Raises ``InputError`` on a key that ``Qwen2Config`` would not take."""
    sizes = decoder_sizes(config, DEFAULTS)
    attention = grouped_query_attention(
        sizes,
        num_key_value_heads=optional_whole_number(config, "num_key_value_heads", 32)
        or sizes.num_attention_heads,
        head_dim=optional_whole_number(config, "head_dim"),
        qkv_bias=True,
    )
    return rotary_decoder(
        name,
        config,
        model_type="qwen2",
        sizes=sizes,
        attention=attention,
        windows=windows_of_layers(config, sizes.num_hidden_layers),
    )
