"""The ``budget`` block of a job file: the whole training run."""

import re

from meshfit.errors import InputError
from meshfit.job.schema import BudgetFile
from meshfit.units import parse_count, parse_duration
from meshfit.workload.budget import BudgetSpec

_HOURS = {"h": 1.0, "min": 1 / 60, "s": 1 / 3600, "d": 24.0}
_PRICE = re.compile(
    r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]{3}|[$€£])\s*/\s*(?:GPU|device|chip)-?h\s*", re.I
)


def read_budget(file: BudgetFile | None) -> BudgetSpec | None:
    """What the block says; None without one.

    Raises:
        InputError: a quantity that cannot be read, or is not greater than 0.
    """
    if file is None:
        return None
    price, currency = read_price(file.price, "budget.price")
    return BudgetSpec(
        tokens=_tokens(file.tokens),
        price_per_device_h=price,
        currency=currency,
        mtbf_device_s=None if file.mtbf is None else device_seconds(file.mtbf, "budget.mtbf"),
        restart_s=_duration(file.restart, "budget.restart", least=0.0),
        save_s=None if file.save is None else _duration(file.save, "budget.save", least=0.0),
        checkpoint_interval_s=(
            None
            if file.checkpoint_every is None
            else positive_duration(file.checkpoint_every, "budget.checkpoint_every")
        ),
    )


def device_seconds(text: str, key: str) -> float:
    """Accelerator-seconds from ``4 GPU-h`` (``4 rank-h`` on CPU ranks).

    Raises:
        InputError: it is written in another way, or not greater than 0.
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(?:GPU|rank)-(d|h|min|s)\s*", text, re.IGNORECASE)
    if match is None or float(match.group(1)) <= 0:
        raise InputError(f"{key} {text!r}: write it like '4 GPU-h' or '30 rank-min'")
    return float(match.group(1)) * _HOURS[match.group(2).lower()] * 3600


def positive_duration(value: str | float, key: str) -> float:
    """Seconds, more than none.

    Raises:
        InputError: it is no duration, or not greater than 0.
    """
    seconds = parse_duration(value)
    if seconds <= 0:
        raise InputError(f"{key} {value!r} must be greater than 0")
    return seconds


def _duration(value: str | float, key: str, *, least: float) -> float:
    seconds = parse_duration(value)
    if seconds < least:
        raise InputError(f"{key} {value!r} must be at least {least:g} s")
    return seconds


def _tokens(value: str | int) -> int:
    text = str(value).strip()
    tokens = parse_count(re.sub(r"\s*tokens?$", "", text), "budget.tokens")
    if tokens <= 0:
        raise InputError(f"budget.tokens {text!r} must be greater than 0")
    return tokens


def read_price(value: str | float | None, key: str) -> tuple[float | None, str]:
    """Price of an accelerator-hour (None without one) and its currency.

    Raises:
        InputError: it is written in another way.
    """
    if value is None:
        return None, "USD"
    match = _PRICE.fullmatch(str(value))
    if match is None:
        raise InputError(f"{key} {value!r}: write it like '2.5 USD/GPU-h'")
    symbols = {"$": "USD", "€": "EUR", "£": "GBP"}
    return float(match.group(1)), symbols.get(match.group(2), match.group(2).upper())
