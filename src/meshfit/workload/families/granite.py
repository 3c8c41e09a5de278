"""Granite: Llama with scalar multipliers, which are no parameters; dense, with experts, with windows
and sinks."""

from dataclasses import replace

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.experts import Experts, every_layer, feed_forwards
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import MAX_TOKENS, Config, optional_whole_number
from meshfit.workload.families.sliding import FULL, SLIDING, windows_by_kind

_SIZES = DecoderSizes(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
)
_BIAS = Flag(key="attention_bias")

GRANITE = DecoderFamily(
    model_type="granite",
    defaults=_SIZES,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    mlp_bias=Flag(key="mlp_bias"),
)
GRANITE_MOE = DecoderFamily(
    model_type="granitemoe",
    defaults=_SIZES,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 8),
            chosen=("num_experts_per_tok", 2),
            width=("intermediate_size", 11008),
        ),
        every_layer,
    ),
)
GRANITE_MOE_SHARED = DecoderFamily(
    model_type="granitemoeshared",
    defaults=_SIZES,
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    feed_forwards=feed_forwards(
        Experts(
            total=("num_local_experts", 8),
            chosen=("num_experts_per_tok", 2),
            width=("intermediate_size", 11008),
            shared_width=("shared_intermediate_size", 0),
        ),
        every_layer,
    ),
)


def _windows(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
    """All but every fourth layer from the first, unless ``layer_types`` says otherwise."""
    window = optional_whole_number(config, "sliding_window", 128, maximum=MAX_TOKENS)
    usual = [SLIDING if i % 4 else FULL for i in range(num_hidden_layers)]
    return windows_by_kind(config, usual, window)


GRANITE_SWA = replace(
    GRANITE,
    model_type="granite_swa",
    defaults=DecoderSizes(
        vocab_size=100352,
        hidden_size=2560,
        intermediate_size=8192,
        num_hidden_layers=24,
        num_attention_heads=20,
        max_position_embeddings=8192,
    ),
    num_key_value_heads=4,
    tie_word_embeddings=True,
    sinks=True,
    windows=_windows,
)
GRANITE_MOE_SWA = replace(
    GRANITE_MOE_SHARED, model_type="granitemoe_swa", sinks=True, windows=_windows
)
