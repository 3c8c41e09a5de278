"""What measured layouts say of the predictions: a factor for each term, and how far they still err.

Everything is robust, so that one odd run does not decide: factors are medians in logarithms, and
intervals are quantiles of what each layout errs by when it is predicted from the others alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.calibration import Calibration, Correction

FloatArray = NDArray[np.float64]

DOUBT = 1.0
"""Layouts' worth of belief that a prediction needs no correction: one layout moves it half of the
way (in logarithms), four move it 80 %."""
SHARES_APART = 0.02
"""Sum of squared deviations of the exposed share at which compute and collectives are told apart
half of the way: where layouts err by 7 % around their factors, and the two factors differ by 50 %,
(0.07 / 0.5)^2. Layouts that expose equally little say nothing of collectives."""
INSIDE = 0.8
"""Of measurements, how many an interval holds."""
LARGEST_FACTOR = 30.0
TIME_FLOOR, MEMORY_FLOOR = math.log(1.03), math.log(1.01)
"""Half widths (logarithms) below which no interval goes: what equal runs differ by."""


@dataclass(frozen=True, kw_only=True)
class StepResidual:
    """One layout: uncorrected seconds of what it computes and of what it exposes, with the idle time
    that they cause, and the measured step."""

    computed_s: float
    exposed_s: float
    measured_s: float

    @property
    def predicted_s(self) -> float:
        return self.computed_s + self.exposed_s


@dataclass(frozen=True, kw_only=True)
class TimeFactors:
    """Measured over predicted. ``step`` multiplies what the other two have corrected."""

    compute: float
    collectives: float
    step: float

    def corrected_s(self, layout: StepResidual) -> float:
        terms = self.compute * layout.computed_s + self.collectives * layout.exposed_s
        return self.step * terms


def calibrated(
    plain: Calibration, steps: Sequence[StepResidual], memory_ratios: Sequence[float]
) -> Calibration:
    """``plain`` with what the layouts teach; what they do not touch stays as it is.

    Args:
        memory_ratios: measured over predicted bytes of the allocator, one a layout.
    """
    found = _with_time(plain, steps) if steps else plain
    return _with_memory(found, memory_ratios) if memory_ratios else found


def time_factors(steps: Sequence[StepResidual]) -> TimeFactors:
    """One factor for computation and one for exposed collectives, drawn towards 1 by ``DOUBT``.

    Two layouts that expose different shares give both factors (two linear equations); of all pairs
    the median is taken, weighted by how far their shares lie apart. Where shares are alike, both
    factors are the median ratio of whole steps.
    """
    computed = np.array([layout.computed_s for layout in steps])
    exposed = np.array([layout.exposed_s for layout in steps])
    measured = np.array([layout.measured_s for layout in steps])
    trust = len(steps) / (len(steps) + DOUBT)
    level = float(np.median(np.log(measured / (computed + exposed))))
    of_compute, of_collectives, weights = _pairs(computed, exposed, measured)
    share = exposed / (computed + exposed)
    apart = float(((share - share.mean()) ** 2).sum())
    told = apart / (apart + SHARES_APART)
    compute = math.exp(trust * _between(level, _median(of_compute, weights), told))
    collectives = math.exp(trust * _between(level, _median(of_collectives, weights), told))
    left = float(np.median(np.log(measured / (compute * computed + collectives * exposed))))
    # What doubt has kept of the whole correction stays kept: only the shape is mended here.
    step = math.exp(left - (1 - trust) * level)
    return TimeFactors(compute=compute, collectives=collectives, step=step)


def half_width(residuals: Sequence[float], plain: float, floor: float) -> float:
    """Half width (logarithm) that holds ``INSIDE`` of new layouts.

    The quantile of absolute residuals for which that holds whatever their distribution, as in
    conformal prediction: the ``ceil(0.8 (n + 1))``-th smallest. Fewer than four say nothing of it:
    then ``plain``, or their largest.
    """
    rank = math.ceil(INSIDE * (len(residuals) + 1))
    ordered = sorted(map(abs, residuals))
    if rank > len(ordered):
        return max([plain, *ordered])
    return max(floor, ordered[rank - 1])


def _with_time(plain: Calibration, steps: Sequence[StepResidual]) -> Calibration:
    factors = time_factors(steps)
    half = half_width(_left_out(steps), math.log(plain.step_time.spread), TIME_FLOOR)
    measured = Correction(spread=math.exp(half), basis="measured_here", samples=len(steps))
    return replace(
        plain,
        compute=replace(measured, factor=factors.compute),
        collectives=replace(measured, factor=factors.collectives),
        step_time=replace(measured, factor=factors.step),
    )


def _with_memory(plain: Calibration, ratios: Sequence[float]) -> Calibration:
    logs = [math.log(ratio) for ratio in ratios]
    errors = [
        one - _shrunk_median([*logs[:index], *logs[index + 1 :]]) for index, one in enumerate(logs)
    ]
    half = half_width(errors, math.log(plain.memory.spread), MEMORY_FLOOR)
    memory = Correction(
        factor=math.exp(_shrunk_median(logs)),
        spread=math.exp(half),
        basis="measured_here",
        samples=len(ratios),
    )
    return replace(plain, memory=memory)


def _left_out(steps: Sequence[StepResidual]) -> list[float]:
    """Logarithm of measured over predicted of each layout, predicted from all others."""
    errors = []
    for index, layout in enumerate(steps):
        others = [*steps[:index], *steps[index + 1 :]]
        predicted = time_factors(others).corrected_s(layout) if others else layout.predicted_s
        errors.append(math.log(layout.measured_s / predicted))
    return errors


def _shrunk_median(logs: Sequence[float]) -> float:
    if not logs:
        return 0.0
    return float(np.median(logs)) * len(logs) / (len(logs) + DOUBT)


def _between(level: float, own: float | None, told: float) -> float:
    return level if own is None else level + told * (own - level)


def _pairs(
    computed: FloatArray, exposed: FloatArray, measured: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Logarithms of both factors as each pair of layouts gives them, and the pairs' weights."""
    first, second = np.triu_indices(len(measured), k=1)
    determinant = computed[first] * exposed[second] - computed[second] * exposed[first]
    known = determinant != 0
    first, second, determinant = first[known], second[known], determinant[known]
    compute = (measured[first] * exposed[second] - measured[second] * exposed[first]) / determinant
    collectives = (
        measured[second] * computed[first] - measured[first] * computed[second]
    ) / determinant
    share = exposed / (computed + exposed)
    low, high = 1 / LARGEST_FACTOR, LARGEST_FACTOR
    return (
        np.log(np.clip(compute, low, high)),
        np.log(np.clip(collectives, low, high)),
        np.abs(share[first] - share[second]),
    )


def _median(values: FloatArray, weights: FloatArray) -> float | None:
    """Weighted median; None without values."""
    if not len(values):
        return None
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
