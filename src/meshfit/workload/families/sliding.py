"""Which layers see a sliding window."""

from collections.abc import Callable, Sequence

from meshfit.errors import InputError
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    MAX_TOKENS,
    Config,
    flag,
    layer_kinds,
    optional_whole_number,
    whole_number,
)

Windows = Callable[[Config, int], Sequence[int | None]]
"""(config, number of layers) -> the sliding window of every layer."""

FULL, SLIDING = "full_attention", "sliding_attention"
KINDS = {"attention": FULL, FULL: FULL, SLIDING: SLIDING}
"""Spelling in ``layer_types`` (old ones too) -> kind."""


def windows_of_layers(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
    """The window of every layer of a Qwen2 or Qwen3 model in tokens, None where a layer sees everything.

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
    if config.get("layer_types") is not None:
        return _named_windows(config, num_hidden_layers, window if enabled else None)
    return tuple(window if enabled and i >= first else None for i in range(num_hidden_layers))


def _named_windows(
    config: Config, num_hidden_layers: int, window: int | None
) -> tuple[int | None, ...]:
    if window is None and SLIDING in layer_kinds(config, num_hidden_layers, KINDS, ()):
        raise InputError(
            f"layer_types asks for {SLIDING!r}, but there is no window; it takes"
            " use_sliding_window true and a sliding_window"
        )
    return windows_by_kind(config, (FULL,) * num_hidden_layers, window)


def windows_by_kind(
    config: Config, usual: Sequence[str], window: int | None
) -> tuple[int | None, ...]:
    """``window`` tokens in the sliding layers that ``layer_types`` names, else in those of ``usual``.

    Raises:
        InputError: ``layer_types`` cannot be right.
    """
    kinds = layer_kinds(config, len(usual), KINDS, usual)
    return tuple(window if kind == SLIDING else None for kind in kinds)


def one_window(default: int | None) -> Windows:
    """Every layer has the window under ``sliding_window``; null: none has one."""

    def windows(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
        window = optional_whole_number(config, "sliding_window", default, maximum=MAX_TOKENS)
        return (window,) * num_hidden_layers

    return windows


def alternating_windows(
    default: int | None, pattern: int, *, pattern_key: str | None = None
) -> Windows:
    """``layer_types`` decides; without it, every ``pattern``-th layer sees everything.

    ``pattern_key`` names the key under which older configs state the pattern. A window of null
    means that none has one.
    """

    def windows(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
        window = optional_whole_number(config, "sliding_window", default, maximum=MAX_TOKENS)
        every = pattern
        if pattern_key is not None:
            every = whole_number(config, pattern_key, pattern, maximum=MAX_LAYERS)
        usual = [FULL if (i + 1) % every == 0 else SLIDING for i in range(num_hidden_layers)]
        return windows_by_kind(config, usual, window)

    return windows


def late_windows(default: int | None, first: int) -> Windows:
    """Layers from ``max_window_layers`` on have a window, unless ``layer_types`` says otherwise."""

    def windows(config: Config, num_hidden_layers: int) -> tuple[int | None, ...]:
        window = optional_whole_number(config, "sliding_window", default, maximum=MAX_TOKENS)
        start = whole_number(config, "max_window_layers", first, minimum=0, maximum=MAX_LAYERS)
        usual = [SLIDING if i >= start else FULL for i in range(num_hidden_layers)]
        return windows_by_kind(config, usual, window)

    return windows
