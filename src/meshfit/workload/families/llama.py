"""Llama, Llama 2, Llama 3, Code Llama and others of ``model_type: llama``."""

from meshfit.workload.families.decoder import (
    DecoderSizes,
    decoder_sizes,
    divided_head_dim,
    grouped_query_attention,
    rotary_decoder,
)
from meshfit.workload.families.keys import Config, flag, optional_whole_number
from meshfit.workload.model import ModelSpec

DEFAULTS = DecoderSizes(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
)
"""Of transformers' ``LlamaConfig``."""


def read(name: str, config: Config) -> ModelSpec:
    """The model. Raises ``InputError`` on a key that ``LlamaConfig`` would not take."""
    sizes = decoder_sizes(config, DEFAULTS)
    divided_head_dim(sizes.hidden_size, sizes.num_attention_heads)  # asked even beside a head_dim
    attention_bias = flag(config, "attention_bias", False)
    attention = grouped_query_attention(
        sizes,
        num_key_value_heads=optional_whole_number(config, "num_key_value_heads")
        or sizes.num_attention_heads,
        head_dim=optional_whole_number(config, "head_dim"),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
    )
    return rotary_decoder(
        name,
        config,
        model_type="llama",
        sizes=sizes,
        attention=attention,
        mlp_bias=flag(config, "mlp_bias", False),
        windows=(None,) * sizes.num_hidden_layers,
    )
