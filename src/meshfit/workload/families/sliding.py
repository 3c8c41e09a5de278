"""Which layers of a Qwen2 or Qwen3 model see a sliding window."""

from meshfit.errors import InputError
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    MAX_TOKENS,
    Config,
    flag,
    optional_whole_number,
    shown,
    whole_number,
)

FULL, SLIDING = "full_attention", "sliding_attention"
_KINDS = {"attention": FULL, FULL: FULL, SLIDING: SLIDING}
"""Spelling in ``layer_types`` (old ones too) -> kind."""


def windows_of_layers(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
    """The window of every layer in tokens, None where a layer sees everything.

    ``sliding_window`` counts only with ``use_sliding_window``; then the layers from
    ``max_window_layers`` on have it, unless ``layer_types`` names the kind of each layer.

    Raises:
        InputError: a key has the wrong type, or the keys contradict one another.
    """
    enabled = flag(config, "use_sliding_window", False)
    window = optional_whole_number(
        config, "sliding_window", 4096, minimum=int(enabled), maximum=MAX_TOKENS
    )
    first = whole_number(config, "max_window_layers", 28, minimum=0, maximum=MAX_LAYERS)
    kinds = config.get("layer_types")
    if kinds is not None:
        return _named_windows(kinds, num_hidden_layers, window if enabled else None)
    return tuple(window if enabled and i >= first else None for i in range(num_hidden_layers))


def _named_windows(
    kinds: object, num_hidden_layers: int, window: int | None
) -> tuple[int | None, ...]:
    if not isinstance(kinds, list) or not all(
        isinstance(kind, str) and kind in _KINDS for kind in kinds
    ):
        raise InputError(
            f"layer_types is {shown(kinds)}; expected a list of {FULL!r} and {SLIDING!r}"
        )
    if len(kinds) != num_hidden_layers:
        raise InputError(
            f"layer_types has {len(kinds)} entries for {num_hidden_layers} hidden layers"
        )
    sliding = [_KINDS[kind] == SLIDING for kind in kinds]
    if any(sliding) and window is None:
        raise InputError(
            f"layer_types asks for {SLIDING!r}, but there is no window; it takes"
            " use_sliding_window true and a sliding_window"
        )
    return tuple(window if slides else None for slides in sliding)
