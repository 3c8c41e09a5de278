"""Reading single keys of a Hugging Face config: each with its type, range and default.

An absent key takes the default that the family's class in transformers has. A key that is there
must be what that class accepts; anything else is an ``InputError`` with key, value and expectation.
"""

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from meshfit.errors import InputError

Config = Mapping[str, Any]

MAX_LAYERS = 2**13
MAX_HEADS = 2**16
MAX_WIDTH = 2**20
MAX_VOCABULARY = 2**24
MAX_TOKENS = 2**31 - 1
"""Sizes beyond these are slips of the pen. Within them, bytes of training state fit 64 bits."""

_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxdict = 2, 3, 2
_short.maxstring = _short.maxother = 60


def whole_number(
    config: Config, key: str, default: int, *, minimum: int = 1, maximum: int = MAX_WIDTH
) -> int:
    """The whole number under ``key``.

    Raises:
        InputError: null, not a whole number, or outside ``minimum`` to ``maximum``.
    """
    return _checked(key, config.get(key, default), minimum, maximum)


def optional_whole_number(
    config: Config,
    key: str,
    default: int | None = None,
    *,
    minimum: int = 1,
    maximum: int = MAX_WIDTH,
) -> int | None:
    """As ``whole_number``, for a key that may be null; null gives None.

    Raises:
        InputError: neither null nor a whole number in the range.
    """
    value = config.get(key, default)
    return None if value is None else _checked(key, value, minimum, maximum, or_null=True)


def flag(config: Config, key: str, default: bool) -> bool:
    """The truth value under ``key``.

    Raises:
        InputError: anything but true and false.
    """
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise InputError(f"{key} is {shown(value)}; expected true or false")
    return value


def probability(config: Config, key: str, default: float) -> float:
    """The probability under ``key``; null is 0.

    Raises:
        InputError: not a number from 0 to 1.
    """
    value = config.get(key, default)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"{key} is {shown(value)}; expected a probability from 0 to 1")
    return float(value)


def layer_kinds(
    config: Config,
    num_hidden_layers: int,
    allowed: Mapping[str, str],
    default: Sequence[str],
    *,
    key: str = "layer_types",
) -> tuple[str, ...]:
    """The kind of every layer, as a list under ``key`` names them; ``default`` where it is absent.

    ``allowed`` maps every spelling to the kind it means.

    Raises:
        InputError: no list, an unknown kind, or not one kind for each layer.
    """
    kinds = config.get(key)
    if kinds is None:
        return tuple(default)
    if not isinstance(kinds, list) or not all(isinstance(k, str) and k in allowed for k in kinds):
        raise InputError(f"{key} is {shown(kinds)}; expected a list of {_listed(allowed)}")
    if len(kinds) != num_hidden_layers:
        raise InputError(f"{key} has {len(kinds)} entries for {num_hidden_layers} hidden layers")
    return tuple(allowed[kind] for kind in kinds)


def are_sizes(value: object, length: int, maximum: int = MAX_WIDTH) -> TypeGuard[list[int]]:
    """Whether ``value`` is a list of ``length`` whole numbers from 1 to ``maximum``."""
    return (
        isinstance(value, list)
        and len(value) == length
        and all(type(size) is int and 0 < size <= maximum for size in value)
    )


def index_list(config: Config, key: str, limit: int) -> frozenset[int]:
    """The layer numbers listed under ``key``, none where it is absent or null.

    Raises:
        InputError: no list of whole numbers from 0 to ``limit`` - 1.
    """
    value = config.get(key)
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(
        isinstance(i, int) and not isinstance(i, bool) and 0 <= i < limit for i in value
    ):
        raise InputError(
            f"{key} is {shown(value)}; expected a list of layer numbers from 0 to {limit - 1}"
        )
    return frozenset(value)


def with_own_names(config: Config, synonyms: Mapping[str, str]) -> Config:
    """``config`` with other names of a key turned into the family's own (``synonyms``: other -> own).

    Raises:
        InputError: both names of a key are there with different values.
    """
    named: dict[str, tuple[str, Any]] = {}
    for other, own in synonyms.items():
        if other not in config:
            continue
        first, value = named.setdefault(
            own, (own, config[own]) if own in config else (other, config[other])
        )
        if value != config[other]:
            raise InputError(
                f"{first} is {shown(value)} and {other} is {shown(config[other])};"
                " they name the same size"
            )
    return {**config, **{own: value for own, (_, value) in named.items()}} if named else config


_ELEMENT_BYTES = {"float32": 4, "float": 4, "float16": 2, "bfloat16": 2, "half": 2}


def element_bytes(config: Config, key: str, default: str) -> int:
    """Bytes of one element of the floating-point type under ``key``; null is the default.

    Raises:
        InputError: not the name of a type with 16 or 32 bits.
    """
    name = config.get(key)
    name = default if name is None else name
    if not isinstance(name, str) or name.removeprefix("torch.") not in _ELEMENT_BYTES:
        raise InputError(f"{key} is {shown(name)}; expected float32, float16 or bfloat16")
    return _ELEMENT_BYTES[name.removeprefix("torch.")]


def mapping(config: Config, key: str) -> Config:
    """The mapping under ``key``; empty where it is absent or null.

    Raises:
        InputError: something else.
    """
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{key} is {shown(value)}; expected a mapping of keys and values")
    return value


def shown(value: object) -> str:
    """``value`` as it stands in JSON, cut short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    return _short.repr(value)


def _checked(key: str, value: object, minimum: int, maximum: int, *, or_null: bool = False) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not minimum <= value <= maximum:  # type: ignore[operator]
        expected = f"a whole number from {minimum} to {maximum}" + (" or null" if or_null else "")
        raise InputError(f"{key} is {shown(value)}; expected {expected}")
    return value  # type: ignore[return-value]


def _listed(names: Iterable[str]) -> str:
    return " and ".join(repr(name) for name in names)
