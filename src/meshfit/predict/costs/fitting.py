"""Constants of the time model found again from measured steps.

A robust fit of logarithms: a family of measurements weighs as the root of its rows, so that large
ones do not decide alone and small ones do not decide as much; what lies far off weighs little.
Nothing here knows a model or a family by name.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.constants import TimeConstants

FloatArray = NDArray[np.float64]

TOLERANCE = 0.08
"""Relative error at which a row weighs half (Cauchy's weight function)."""
PRIOR = 0.5
"""Relative change of a constant that costs as much as an error of ``TOLERANCE`` in one of all rows
together: what rows say nothing of stays where it was."""
STEP = 0.02
MOST_PER_ROUND = 0.25

Predict = Callable[[TimeConstants], FloatArray]


def fit_constants(
    predict: Predict,
    measured_s: FloatArray,
    families: Sequence[str],
    *,
    start: TimeConstants,
    rounds: int = 4,
    tolerance: float = TOLERANCE,
    prior: float = PRIOR,
) -> TimeConstants:
    """``start`` with its fitted constants moved to where predictions follow the measurements.

    Iteratively reweighted Gauss-Newton on ``log(predicted / measured)``, with derivatives by
    differences.

    Args:
        predict: seconds of every row under given constants.
        families: of every row.
        tolerance, prior: see ``TOLERANCE`` and ``PRIOR``.
    """
    names = [name for name, entry in start.entries.items() if entry.is_fitted]
    sizes = Counter(families)
    share = np.array([sizes[family] ** -0.5 for family in families])
    share = share / share.sum()
    origin = np.log([start[name] for name in names])
    at, constants = origin.copy(), start
    for _ in range(rounds):
        base = np.log(predict(constants) / measured_s)
        slopes = np.stack([_slope(predict, constants, name, base, measured_s) for name in names], 1)
        weight = share / (1 + (base / tolerance) ** 2)
        pull = (tolerance / prior) ** 2 / len(names)
        hessian = slopes.T @ (weight[:, None] * slopes) + pull * np.eye(len(names))
        gradient = slopes.T @ (weight * base) + pull * (at - origin)
        move = np.clip(-np.linalg.solve(hessian, gradient), -MOST_PER_ROUND, MOST_PER_ROUND)
        at = _bounded(at + move, names, start)
        constants = start.with_values(dict(zip(names, map(float, np.exp(at)), strict=True)))
    return constants


def _slope(
    predict: Predict,
    constants: TimeConstants,
    name: str,
    base: FloatArray,
    measured_s: FloatArray,
) -> FloatArray:
    moved = constants.with_values({name: constants[name] * (1 + STEP)})
    return np.asarray((np.log(predict(moved) / measured_s) - base) / np.log1p(STEP))


def _bounded(at: FloatArray, names: Sequence[str], start: TimeConstants) -> FloatArray:
    low = np.log([max(start.entries[name].low, 1e-6) for name in names])
    high = np.log([start.entries[name].high for name in names])
    return np.clip(at, low, high)


def from_the_middle(constants: TimeConstants) -> TimeConstants:
    """``constants`` with every fitted one in the (geometric) middle of its range."""
    middles = {
        name: math.sqrt(entry.low * entry.high) if entry.low > 0 else entry.high / 2
        for name, entry in constants.entries.items()
        if entry.is_fitted
    }
    return constants.with_values(middles)


def fit_spread_scale(
    log_errors: FloatArray, log_spreads: FloatArray, *, inside: float = 0.8
) -> float:
    """Factor on half widths of intervals (logarithms) that leaves a share of the errors inside."""
    return float(np.quantile(np.abs(log_errors) / log_spreads, inside))
