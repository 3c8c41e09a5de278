"""Reading and showing quantities. The only module that converts units.

Inside meshfit every number is in base units and its name says so (``_bytes``, ``_s``,
``_bytes_per_s``). Memory is shown in GiB, bandwidth in decimal GB/s, time in ms.
"""

import math
import re

from meshfit.errors import InputError

_BYTE_UNITS = {
    "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50,
}  # fmt: skip
_BIT_UNITS = {"Kb": 1e3, "Mb": 1e6, "Gb": 1e9, "Tb": 1e12}
_TIME_UNITS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip
_COUNT_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}

_QUANTITY = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9].*?)?\s*$")


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.match(text)
    if match is None:
        raise InputError(f"{text!r} is not a {what}; write it like {example}")
    return _finite(float(match.group(1)), text, what), match.group(2) or ""


def _finite(number: float, value: str | float, what: str) -> float:
    if not math.isfinite(number):
        raise InputError(f"{value!r} is not a {what}: it must be a finite number")
    return number


def _unit(unit: str, table: dict[str, float] | dict[str, int], text: str, what: str) -> float:
    """The factor of ``unit``: exact spelling first, then any case when that names one unit."""
    if unit in table:
        return table[unit]
    folded = {value for name, value in table.items() if name.lower() == unit.lower()}
    if len(folded) != 1:
        known = ", ".join(name for name in table if name)
        raise InputError(f"{text!r}: unknown unit {unit!r} of a {what}; known: {known}")
    return folded.pop()


def parse_bytes(value: str | int) -> int:
    """Bytes from ``80 GiB``, ``2 GB`` (decimal) or a plain number of bytes.

    Raises:
        InputError: not a number with a byte unit.
    """
    if isinstance(value, int):
        return value
    number, unit = _split(value, "size in bytes", "'80 GiB'")
    return round(number * _unit(unit or "B", _BYTE_UNITS, value, "size"))


def parse_bandwidth(value: str | float) -> float:
    """Bytes per second from ``450 GB/s`` (bytes) or ``400 Gb/s``, ``400 Gbit/s`` (bits).

    Raises:
        InputError: not a rate, or one that may be of bits or of bytes (``400 gb/s``).
    """
    if isinstance(value, int | float):
        return _finite(float(value), value, "bandwidth")
    number, unit = _split(value, "bandwidth", "'450 GB/s' or '400 Gbit/s'")
    amount = _per_second(unit)
    if amount is None:
        raise InputError(
            f"{value!r} is not a bandwidth: per what? Write '450 GB/s' or '400 Gbit/s'"
        )
    if amount.lower().endswith("bit"):
        amount = amount[:-3].upper() + "b"
    if amount in _BIT_UNITS:
        return number * _BIT_UNITS[amount] / 8
    if amount.endswith("b"):
        raise InputError(f"{value!r}: bits or bytes? Write '450 GB/s' or '400 Gbit/s'")
    return number * _unit(amount, _BYTE_UNITS, value, "bandwidth")


def _per_second(unit: str) -> str | None:
    """``GB`` of ``GB/s``, ``Gb`` of ``Gbps``; None when the unit is of no rate."""
    amount, slash, per = unit.partition("/")
    if slash:
        return amount.strip() if per.strip() in ("s", "sec") else None
    return unit.removesuffix("ps") if unit.endswith("ps") else None


def parse_duration(value: str | float) -> float:
    """Seconds from ``14 us``, ``2.5 ms``, ``3 h`` or a plain number of seconds.

    Raises:
        InputError: not a number with a time unit.
    """
    if isinstance(value, int | float):
        return _finite(float(value), value, "duration")
    number, unit = _split(value, "duration", "'14 us'")
    return number * _unit(unit or "s", _TIME_UNITS, value, "duration")


def parse_count(value: str | int, what: str = "count") -> int:
    """A whole number from ``4M``, ``15T``, ``128`` (powers of ten).

    Raises:
        InputError: not a number with one of K, M, B, T, or not whole.
    """
    if isinstance(value, int):
        return value
    number, unit = _split(value, what, "'4M' or '128'")
    product = number * _unit(unit, _COUNT_UNITS, value, what)
    if product != round(product):
        raise InputError(f"{value!r} is not a whole {what}")
    return round(product)


def parse_fraction(value: str | float) -> float:
    """A fraction from ``10%`` or ``0.1``.

    Raises:
        InputError: not a number, or outside 0 to 1.
    """
    if isinstance(value, int | float):
        fraction = float(value)
    else:
        number, unit = _split(value, "fraction", "'10%' or 0.1")
        if unit not in ("", "%"):
            raise InputError(f"{value!r} is not a fraction; write it like '10%' or 0.1")
        fraction = number / 100 if unit == "%" else number
    if not 0 <= fraction <= 1:
        raise InputError(f"{value!r} is outside 0 to 1 (0% to 100%)")
    return fraction


def format_bytes(size_bytes: float) -> str:
    """``12.3 GiB``, ``1.50 MiB``, ``512 B``."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size_bytes) >= factor:
            return f"{_three_digits(size_bytes / factor)} {unit}"
    return f"{size_bytes:.0f} B"


def format_bandwidth(bytes_per_s: float) -> str:
    """``450 GB/s`` (decimal)."""
    for unit, factor in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("KB/s", 1e3)):
        if bytes_per_s >= factor:
            return f"{_three_digits(bytes_per_s / factor)} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def format_duration(seconds: float) -> str:
    """``812 ms``, ``14.0 us``, ``3.20 s``, ``5 min 10 s``, ``2 h 03 min``; ``0 s``."""
    if seconds == 0:
        return "0 s"
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def format_count(count: float) -> str:
    """``8.03 B``, ``131 K``, ``512``."""
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(count) >= factor:
            return f"{_three_digits(count / factor)} {unit}"
    return f"{count:.0f}"


def format_flops_rate(flops_per_s: float) -> str:
    """``989 TFLOP/s``, ``78.3 GFLOP/s``."""
    unit, factor = ("TFLOP/s", 1e12) if flops_per_s >= 1e12 else ("GFLOP/s", 1e9)
    return f"{_three_digits(flops_per_s / factor)} {unit}"


def format_percent(fraction: float) -> str:
    """``43.2%``."""
    return f"{fraction * 100:.1f}%"


def _three_digits(number: float) -> str:
    magnitude = abs(number)
    return (
        f"{number:.0f}"
        if magnitude >= 100
        else f"{number:.1f}"
        if magnitude >= 10
        else f"{number:.2f}"
    )
