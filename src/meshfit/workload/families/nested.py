"""Configs that hold the language model's config inside, beside those of vision or sound towers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from meshfit.workload.families.keys import Config
from meshfit.workload.model import ModelSpec, TowerSpec

LANGUAGE_KEYS = ("text_config", "language_config", "llm_config", "language_model")
"""Where the language model's config usually is; anywhere else it is searched for."""

_TOWER_WORDS = (
    *("vision", "visual", "audio", "speech", "talker", "token2wav", "image", "video"),
    *("qformer", "perceiver", "resampler", "vq_config", "adapter"),
)

MAX_DEPTH = 4


def language_configs(config: Config) -> Iterator[tuple[str, Config]]:
    """Every config inside ``config`` that states a ``model_type``, with its path, the likeliest
    first: at the usual keys, then near the top; configs of towers are left out."""
    found = sorted(_nested(config, ()), key=lambda item: (len(item[0]), _rank(item[0])))
    for path, inner in found:
        if not any(_is_tower(key) for key in path):
            yield ".".join(path), inner


def _nested(config: Config, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Config]]:
    if len(path) == MAX_DEPTH:
        return
    for key, value in config.items():
        if isinstance(value, Mapping):
            here = (*path, str(key))
            if isinstance(value.get("model_type"), str):
                yield here, value
            yield from _nested(value, here)


def _rank(path: tuple[str, ...]) -> int:
    return LANGUAGE_KEYS.index(path[-1]) if path[-1] in LANGUAGE_KEYS else len(LANGUAGE_KEYS)


def _is_tower(key: object) -> bool:
    return any(word in str(key).lower() for word in _TOWER_WORDS)


def tower_keys(config: Config) -> tuple[str, ...]:
    """Keys that hold the config of a tower, at the top or one level below."""
    inner = (value for key, value in config.items() if _is_config(value) and not _is_tower(key))
    return tuple(
        key
        for where in (config, *inner)
        for key, value in where.items()
        if _is_config(value) and _is_tower(key)
    )


def _is_config(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value) > 0


def with_uncounted_towers(model: ModelSpec, config: Config, model_type: str) -> ModelSpec:
    """``model`` as the language model of ``config``; towers are named, but not counted."""
    towers = tuple(TowerSpec(name=key, tensors=None, counted=False) for key in tower_keys(config))
    return replace(model, model_type=model_type, towers=model.towers + towers, config=config)
