"""Which layouts are really run: heuristics select candidates, never winners."""

from collections.abc import Iterator
from itertools import islice

from meshfit.funnel.space.planning import Plan
from meshfit.mesh.spec import LayoutSpec

STRATEGIES = ("DDP", "FSDP2", "TP", "PP")
"""Each is represented by its best layout, where the space has one that fits."""

_LOOKED_AT = 5000
"""Best layouts that are looked through for a strategy or a new family: a large space holds far
more of one family in a row than could ever be run."""


def shortlist(plan: Plan, length: int, *, besides: LayoutSpec | None = None) -> list[int]:
    """Indices of the layouts to run, at most ``length``, the best predicted first.

    ``besides`` is run anyway: it is not among them, and where it is the best of its strategy it
    represents it.

    First the best layout of all, then the best of each strategy, those that the best layout has no
    part of before the others; then, in predicted order and new families before more of the same,
    layouts whose step time cannot be told from the best one's.
    """
    ordered = [int(index) for index in plan.fitting_order()[:_LOOKED_AT]]
    families = {index: plan.layout(index).family for index in ordered}
    chosen = [*ordered[:1], *_of_each_strategy(families)]
    chosen = sorted(list(dict.fromkeys(chosen))[:length], key=ordered.index)
    given = {index for index in ordered if plan.layout(index) == besides}
    chosen = [index for index in chosen if index not in given]
    more = (index for index in _contenders(plan, families, chosen) if index not in given)
    return [*chosen, *islice(more, max(0, length - len(chosen)))][:length]


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


def _contenders(plan: Plan, families: dict[int, str], chosen: list[int]) -> Iterator[int]:
    """Layouts that may be as fast as the best one: one of each new family, then the others."""
    fastest_high_s = min((plan.estimates.step_high_s[index] for index in families), default=0.0)
    may_win = [
        index
        for index in families
        if index not in chosen and plan.estimates.step_low_s[index] <= fastest_high_s
    ]
    seen = {families[index] for index in chosen}
    first_of_family = []
    for index in may_win:
        if families[index] not in seen:
            seen.add(families[index])
            first_of_family.append(index)
    yield from first_of_family
    yield from (index for index in may_win if index not in first_of_family)
