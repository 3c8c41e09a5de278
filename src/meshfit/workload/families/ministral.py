"""Ministral: Mistral with windows in some layers (2410), or with none (Ministral 3)."""

from collections.abc import Sequence

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily
from meshfit.workload.families.keys import (
    MAX_TOKENS,
    Config,
    layer_kinds,
    optional_whole_number,
)
from meshfit.workload.families.sliding import KINDS, SLIDING, one_window


def _windows(config: Config, num_hidden_layers: int) -> Sequence[int | None]:
    """Every layer has the window, unless ``layer_types`` says otherwise."""
    window = optional_whole_number(config, "sliding_window", 4096, maximum=MAX_TOKENS)
    kinds = layer_kinds(config, num_hidden_layers, KINDS, [SLIDING] * num_hidden_layers)
    return tuple(window if kind == SLIDING else None for kind in kinds)


MINISTRAL = DecoderFamily(
    model_type="ministral",
    defaults=DecoderSizes(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    windows=_windows,
)

MINISTRAL3 = DecoderFamily(
    model_type="ministral3",
    defaults=DecoderSizes(
        vocab_size=131072,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=34,
        num_attention_heads=32,
        max_position_embeddings=262144,
    ),
    num_key_value_heads=8,
    head_dim=128,
    windows=one_window(None),
)
