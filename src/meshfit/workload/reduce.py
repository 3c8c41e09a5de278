"""A model cut until one process can hold it, so that parity can be proved where it is too big.

Every step is named, and the record of a proof lists the steps it needed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_WIDTH_KEYS = ("intermediate_size", "n_inner", "ffn_dim")
_PER_LAYER_LISTS = ("layer_types", "no_rope_layers")

SMALL_VOCABULARY = 4096


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """A cut configuration and the names of the steps that led to it."""

    config: dict[str, Any]
    steps: tuple[str, ...]


def reductions(
    config: Mapping[str, Any], *, fewest_layers: int, multiple: int
) -> Iterator[Reduced]:
    """Ever smaller versions of ``config``, the gentlest first.

    Depth goes first, to ``fewest_layers`` or as many as it takes to keep one of every layer kind;
    then the vocabulary, then the MLP width. Widths stay multiples of ``multiple`` (the lcm of the
    tensor-parallel degrees in play), so that every layout that was legal stays legal.
    """
    steps: list[str] = []
    small = dict(config)
    layers = max(fewest_layers, layers_for_every_kind(config))
    for key in _LAYER_KEYS:
        if isinstance(small.get(key), int) and small[key] > layers:
            steps.append(f"{key} {small[key]} -> {layers}")
            small[key] = layers
    for key in _PER_LAYER_LISTS:
        if isinstance(small.get(key), list):
            small[key] = small[key][:layers]
    yield Reduced(config=dict(small), steps=tuple(steps))

    vocabulary = _round_up(SMALL_VOCABULARY, multiple)
    if small.get("vocab_size", 0) > vocabulary:
        steps.append(f"vocab_size {small['vocab_size']} -> {vocabulary}")
        small["vocab_size"] = vocabulary
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            small.pop(key, None)
        yield Reduced(config=dict(small), steps=tuple(steps))

    for key in _WIDTH_KEYS:
        if isinstance(small.get(key), int) and small[key] > 4 * multiple:
            narrow = _round_up(small[key] // 4, multiple)
            steps.append(f"{key} {small[key]} -> {narrow}")
            small[key] = narrow
            yield Reduced(config=dict(small), steps=tuple(steps))


def layers_for_every_kind(config: Mapping[str, Any]) -> int:
    """The shortest run of first layers that holds every kind of ``layer_types``; 1 without it."""
    kinds = config.get("layer_types")
    if not isinstance(kinds, list) or not kinds:
        return 1
    return max(kinds.index(kind) for kind in set(kinds)) + 1


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
