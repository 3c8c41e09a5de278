"""Reading single keys of a Hugging Face config: each with its type, range and default.

An absent key takes the default that the family's class in transformers has. A key that is there
must be what that class accepts; anything else is an ``InputError`` with key, value and expectation.
"""

import math
import reprlib
from collections.abc import Mapping
from typing import Any

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
