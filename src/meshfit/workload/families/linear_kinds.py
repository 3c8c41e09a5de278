"""Decoders of linear and softmax attention in turn: which layer is which, and heads that fit."""

from collections.abc import Sequence

from meshfit.errors import InputError
from meshfit.workload.families.keys import Config, layer_kinds

FULL, LINEAR = "full", "linear"
_KINDS = {"full_attention": FULL, "linear_attention": LINEAR}


def attention_kinds(config: Config, usual: Sequence[str]) -> tuple[str, ...]:
    """``FULL`` or ``LINEAR`` for every layer, as ``layer_types`` names them, else as ``usual`` does.

    Raises:
        InputError: ``layer_types`` cannot be right.
    """
    return layer_kinds(config, len(usual), _KINDS, usual)


def every_nth_full(num_hidden_layers: int, every: int) -> list[str]:
    """Linear attention but in the last of every so many layers."""
    return [FULL if (i + 1) % every == 0 else LINEAR for i in range(num_hidden_layers)]


def check_delta_heads(num_key_heads: int, num_value_heads: int) -> None:
    """Raises:
    InputError: the value heads of a gated delta net cannot be shared out to its key heads.
    """
    if num_value_heads % num_key_heads:
        raise InputError(
            f"linear_num_value_heads {num_value_heads} is no multiple of linear_num_key_heads"
            f" {num_key_heads}; every key head serves equally many value heads"
        )
