"""Layouts that were measured side by side: what the predicted best would have cost, and their order."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from meshfit.validate.serving.predictions import ServingPrediction

SEVERAL = 2
MANY = 4
CLEAR_RATIO = 1.05
"""Two layouts that differ by less count as equally fast: their order is not judged."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One group of rows (a model on a system, a backend, lengths) by one measure.

    Attributes:
        layouts: different ones that are compared; rows: with their concurrencies.
        regret: of the row predicted best against the one measured best, as a fraction of the latter.
        pairs_right: of clearly different pairs, the fraction in the predicted order; None without.
    """

    group: tuple[object, ...]
    layouts: int
    rows: int
    regret: float
    pairs_right: float | None


Measured = tuple[float, float]
"""(predicted, measured); more is better."""


def throughput_choices(predictions: Sequence[ServingPrediction]) -> list[Choice]:
    """Groups by output tokens a second and accelerator over all their layouts and concurrencies:
    ``concurrency / tpot / accelerators``."""
    return _choices(predictions, key=lambda one: one.row.group, value=_throughput)


def throughput_choices_at_one_load(predictions: Sequence[ServingPrediction]) -> list[Choice]:
    """The same at one concurrency each: which layout to take for so many requests in flight."""
    return _choices(
        predictions, key=lambda one: (*one.row.group, one.row.concurrency), value=_throughput
    )


def latency_choices(predictions: Sequence[ServingPrediction]) -> list[Choice]:
    """Groups at one concurrency by the time of a token."""
    return _choices(
        predictions, key=lambda one: (*one.row.group, one.row.concurrency), value=_speed
    )


def choice_score(choices: Sequence[Choice]) -> dict[str, Any]:
    """Median and mean regret and order of some groups; those with four layouts and more apart."""
    many = [one for one in choices if one.layouts >= MANY]
    return {
        "groups": len(choices),
        "groups_of_four_or_more": len(many),
        **_summary(choices),
        **{f"{name}_of_four_or_more": value for name, value in _summary(many).items()},
    }


def _summary(choices: Sequence[Choice]) -> dict[str, float | None]:
    if not choices:
        return {"median_regret": None, "mean_regret": None, "pairs_right": None}
    orders = [one.pairs_right for one in choices if one.pairs_right is not None]
    regrets = [one.regret for one in choices]
    return {
        "median_regret": statistics.median(regrets),
        "mean_regret": statistics.fmean(regrets),
        "pairs_right": statistics.fmean(orders) if orders else None,
    }


def _choices(predictions: Sequence[ServingPrediction], *, key: Any, value: Any) -> list[Choice]:
    together: dict[tuple[object, ...], dict[object, list[Measured]]] = defaultdict(dict)
    layouts: dict[tuple[object, ...], set[object]] = defaultdict(set)
    for one in predictions:
        if one.tpot_s is None:
            continue
        group = key(one)
        layouts[group].add(one.row.stated)
        point = (one.row.layout, one.row.concurrency)
        together[group].setdefault(point, []).append(value(one))
    return [
        _choice(group, len(layouts[group]), _medians(points))
        for group, points in together.items()
        if len(layouts[group]) >= SEVERAL
    ]


def _medians(points: Mapping[object, Sequence[Measured]]) -> list[Measured]:
    """Repeats of one layout and concurrency as one."""
    return [
        (statistics.median(p for p, _ in values), statistics.median(m for _, m in values))
        for values in points.values()
    ]


def _choice(group: tuple[object, ...], layouts: int, points: Sequence[Measured]) -> Choice:
    best = max(measured for _, measured in points)
    chosen = max(points)[1]
    verdicts = [
        (one[0] > other[0]) == (one[1] > other[1])
        for one, other in combinations(points, 2)
        if max(one[1], other[1]) >= CLEAR_RATIO * min(one[1], other[1])
    ]
    return Choice(
        group=group,
        layouts=layouts,
        rows=len(points),
        regret=1 - chosen / best,
        pairs_right=sum(verdicts) / len(verdicts) if verdicts else None,
    )


def _throughput(one: ServingPrediction) -> Measured:
    row = one.row
    assert row.layout is not None and row.concurrency is not None and one.tpot_s is not None
    per_accelerator = row.concurrency / row.layout.ranks_per_replica
    return per_accelerator / one.tpot_s, per_accelerator / row.tpot_s


def _speed(one: ServingPrediction) -> Measured:
    assert one.tpot_s is not None
    return 1 / one.tpot_s, 1 / one.row.tpot_s
