"""What a shortlist would have missed, judged by a sweep that ran every layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from meshfit.validate.serving.layouts import CLEAR_RATIO


@dataclass(frozen=True, kw_only=True)
class TimedLayout:
    """One layout: seconds of a step as predicted and as measured.

    ``noise_s`` is the half width within which two measured medians cannot be told apart.
    """

    label: str
    predicted_s: float
    measured_s: float
    noise_s: float
    repeat_medians_s: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ShortlistScore:
    """How a shortlist did.

    Attributes:
        layouts: so many were measured.
        best, best_s: the one measured fastest, and its step.
        tied: so many others cannot be told from it.
        place_of_best: in the order of predictions, from 1.
        chosen: the layout predicted fastest; chosen_regret: how much slower it measured than the
            best, as a fraction of the best.
        shortlist: labels; holds_best, holds_tied: whether the best, or one tied with it, is there;
            shortlist_regret: of the fastest of them.
        repeats_held: in how many of ``repeats``, each by its own medians, it held the best.
        random_holds_best, random_regret: what a random shortlist of that length would do: its
            chance to hold the best, and its mean regret.
        pairs_right: fraction of pairs, of those that differ by ``CLEAR_RATIO`` or more, that are
            in the predicted order; None when there are none.
        errors: of predicted steps, as ``step_errors`` has them.
    """

    layouts: int
    best: str
    best_s: float
    tied: int
    place_of_best: int
    chosen: str
    chosen_regret: float
    shortlist: tuple[str, ...]
    holds_best: bool
    holds_tied: bool
    shortlist_regret: float
    repeats: int
    repeats_held: int
    random_holds_best: float
    random_regret: float
    pairs_right: float | None
    errors: dict[str, float]


def score_shortlist(layouts: Sequence[TimedLayout], shortlist: Sequence[str]) -> ShortlistScore:
    """The score of ``shortlist`` (labels, all of them among ``layouts``)."""
    best = min(layouts, key=lambda one: one.measured_s)
    predicted = sorted(layouts, key=lambda one: one.predicted_s)
    chosen = predicted[0]
    listed = [one for one in layouts if one.label in shortlist]
    tied = [one for one in layouts if one is not best and _is_tied(one, best)]
    repeats = min(len(one.repeat_medians_s) for one in layouts)
    return ShortlistScore(
        layouts=len(layouts),
        best=best.label,
        best_s=best.measured_s,
        tied=len(tied),
        place_of_best=1 + predicted.index(best),
        chosen=chosen.label,
        chosen_regret=chosen.measured_s / best.measured_s - 1,
        shortlist=tuple(shortlist),
        holds_best=best in listed,
        holds_tied=any(one is best or one in tied for one in listed),
        shortlist_regret=min(one.measured_s for one in listed) / best.measured_s - 1,
        repeats=repeats,
        repeats_held=sum(_best_of_repeat(layouts, r) in shortlist for r in range(repeats)),
        random_holds_best=len(listed) / len(layouts),
        random_regret=mean_regret_of_random(
            [one.measured_s for one in layouts], length=len(listed)
        ),
        pairs_right=pairs_in_order(layouts),
        errors=step_errors(layouts),
    )


def step_errors(layouts: Sequence[TimedLayout]) -> dict[str, float]:
    """Of predicted over measured steps, less one: ``median`` and ``p90`` of absolute errors, ``bias``,
    the median of signed ones."""
    errors = np.array([one.predicted_s / one.measured_s - 1 for one in layouts])
    return {
        "median": float(np.median(np.abs(errors))),
        "p90": float(np.quantile(np.abs(errors), 0.9)),
        "bias": float(np.median(errors)),
    }


def mean_regret_of_random(seconds: Sequence[float], *, length: int) -> float:
    """Mean regret of the fastest of ``length`` layouts drawn without replacement.

    The k-th fastest of n is the fastest drawn with probability C(n - k, length - 1) / C(n, length).
    """
    ordered = sorted(seconds)
    n = len(ordered)
    mean_s = sum(
        comb(n - k, length - 1) / comb(n, length) * value for k, value in enumerate(ordered, 1)
    )
    return mean_s / ordered[0] - 1


def pairs_in_order(layouts: Sequence[TimedLayout]) -> float | None:
    """Fraction of clearly different pairs that predictions put in the measured order."""
    verdicts = []
    for one, other in combinations(layouts, 2):
        fast, slow = sorted((one, other), key=lambda layout: layout.measured_s)
        if slow.measured_s >= CLEAR_RATIO * fast.measured_s:
            verdicts.append(fast.predicted_s < slow.predicted_s)
    return sum(verdicts) / len(verdicts) if verdicts else None


def _is_tied(one: TimedLayout, best: TimedLayout) -> bool:
    return one.measured_s - one.noise_s <= best.measured_s + best.noise_s


def _best_of_repeat(layouts: Sequence[TimedLayout], repeat: int) -> str:
    return min(layouts, key=lambda one: one.repeat_medians_s[repeat]).label
