"""CWM: Llama with a window in three of four layers, the first one without."""

from collections.abc import Sequence

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, Flag
from meshfit.workload.families.keys import (
    MAX_TOKENS,
    Config,
    layer_kinds,
    optional_whole_number,
)
from meshfit.workload.families.sliding import FULL, KINDS, SLIDING


def _windows(config: Config, num_hidden_layers: int) -> Sequence[int | None]:
    window = optional_whole_number(config, "sliding_window", 8192, maximum=MAX_TOKENS)
    usual = [SLIDING if i % 4 else FULL for i in range(num_hidden_layers)]
    kinds = layer_kinds(config, num_hidden_layers, KINDS, usual)
    return tuple(window if kind == SLIDING else None for kind in kinds)


CWM = DecoderFamily(
    model_type="cwm",
    defaults=DecoderSizes(
        vocab_size=128256,
        hidden_size=6144,
        intermediate_size=21504,
        num_hidden_layers=64,
        num_attention_heads=48,
        max_position_embeddings=131072,
    ),
    num_key_value_heads=8,
    head_dim=128,
    mlp_bias=Flag(key="mlp_bias"),
    windows=_windows,
)
