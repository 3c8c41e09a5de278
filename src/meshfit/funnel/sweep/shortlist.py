"""Which layouts are really run: heuristics select candidates, never winners."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from meshfit.funnel.space.planning import Plan
from meshfit.mesh.spec import LayoutSpec

STRATEGIES = ("DDP", "FSDP2", "TP", "PP")
"""Each is represented by its best layout, where the space has one that fits."""

_LOOKED_AT = 5000
"""Best layouts that are looked through for a strategy or a contender: a large space holds far more of
one family in a row than could ever be run."""


def shortlist(plan: Plan, length: int, *, besides: LayoutSpec | None = None) -> list[int]:
    """Indices of the layouts to run, at most ``length``, the best predicted first.

    ``besides`` is run anyway: it is not among them, and where it is the best of its strategy it
    represents it.

    First the best layout of all, then the best of each strategy, those that the best layout has no
    part of before the others; then contenders, layouts that may be faster than all of these: each the
    one whose run takes most from the regret that is to be expected.
    """
    ordered = [int(index) for index in plan.fitting_order()[:_LOOKED_AT]]
    families = {index: plan.layout(index).family for index in ordered}
    given = [index for index in ordered if plan.layout(index) == besides]
    first = dict.fromkeys([*ordered[:1], *_of_each_strategy(families)])
    chosen = [index for index in first if index not in given][:length]
    chosen.sort(key=ordered.index)
    more = _contenders(plan, ordered, [*given, *chosen])
    return [*chosen, *islice(more, max(0, length - len(chosen)))]


def _of_each_strategy(families: dict[int, str]) -> list[int]:
    """The best layout of each strategy; ``families`` are in predicted order."""
    in_best = next(iter(families.values()), "").split("+")
    new_first = sorted(STRATEGIES, key=lambda strategy: strategy in in_best)
    found = (_best_of(strategy, families) for strategy in new_first)
    return [index for index in found if index is not None]


def _best_of(strategy: str, families: dict[int, str]) -> int | None:
    """The best layout that is nothing but ``strategy``, else the best one that contains it."""
    pure = (index for index, family in families.items() if family == strategy)
    mixed = (index for index, family in families.items() if strategy in family.split("+"))
    return next(pure, next(mixed, None))


def _contenders(plan: Plan, ordered: list[int], chosen: list[int]) -> Iterator[int]:
    """Layouts beside ``chosen``, the one whose run is worth most first.

    Regret is how much longer the fastest of those that are run takes than the fastest of all. Drawn
    from what predictions may err by, its mean is what a choice costs; a layout that is like a chosen
    one and slower takes nothing from it, and one that wins where the chosen ones lose takes most.
    """
    if not ordered:
        return
    steps = plan.estimates.drawn_steps(np.array(ordered))
    steps /= steps.min(axis=0)
    rows = [ordered.index(index) for index in chosen]
    best = steps[rows].min(axis=0, initial=np.inf)
    while (row := _worth_most(steps, best)) is not None:
        best = np.minimum(best, steps[row])
        yield ordered[row]


def _worth_most(steps: NDArray[np.float64], best: NDArray[np.float64]) -> int | None:
    """Row whose run lowers the mean of ``best`` most; None where none does."""
    means = np.minimum(steps, best).mean(axis=1)
    row = int(np.argmin(means))
    return row if means[row] < best.mean() else None
