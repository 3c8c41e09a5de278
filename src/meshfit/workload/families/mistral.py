"""Mistral: no biases, and one sliding window in every layer (4096 unless the config says null)."""

from meshfit.workload.families.decoder import (
    DecoderSizes,
    decoder_sizes,
    grouped_query_attention,
    rotary_decoder,
)
from meshfit.workload.families.keys import (
    MAX_TOKENS,
    Config,
    optional_whole_number,
    whole_number,
)
from meshfit.workload.model import ModelSpec

DEFAULTS = DecoderSizes(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=131072,
)
"""Of transformers' ``MistralConfig``."""


def read(name: str, config: Config) -> ModelSpec:
    """The model. Raises ``InputError`` on a key that ``MistralConfig`` would not take."""
    sizes = decoder_sizes(config, DEFAULTS)
    attention = grouped_query_attention(
        sizes,
        num_key_value_heads=whole_number(config, "num_key_value_heads", 8),
        head_dim=optional_whole_number(config, "head_dim"),
    )
    window = optional_whole_number(config, "sliding_window", 4096, maximum=MAX_TOKENS)
    return rotary_decoder(
        name,
        config,
        model_type="mistral",
        sizes=sizes,
        attention=attention,
        windows=(window,) * sizes.num_hidden_layers,
    )
