"""Which layouts are really run: heuristics select candidates, never winners."""

from collections.abc import Iterator

from meshfit.funnel.planning import Plan
from meshfit.mesh.spec import LayoutSpec

STRATEGIES = ("DDP", "FSDP2", "TP", "PP")
"""Each is represented by its best layout, where the space has one that fits."""


def shortlist(plan: Plan, length: int) -> list[int]:
    """Indices of the layouts to run, at most ``length``.

    First the best layout of each strategy; then, in predicted order and new families before more
    of the same, layouts whose step time cannot be told from the best one's.
    """
    ordered = [int(index) for index in plan.fitting_order()]
    chosen: list[int] = []
    for strategy in STRATEGIES:
        index = _best_of(strategy, plan, ordered)
        if index is not None and index not in chosen:
            chosen.append(index)
    chosen.sort(key=ordered.index)
    for index in _contenders(plan, ordered, chosen):
        if len(chosen) >= length:
            break
        chosen.append(index)
    return chosen[:length]


def _best_of(strategy: str, plan: Plan, ordered: list[int]) -> int | None:
    """The best layout that is nothing but ``strategy``, else the best one that contains it."""
    containing = None
    for index in ordered:
        parts = plan.layout(index).family.split("+")
        if parts == [strategy]:
            return index
        if containing is None and strategy in parts:
            containing = index
    return containing


def _contenders(plan: Plan, ordered: list[int], chosen: list[int]) -> Iterator[int]:
    if not ordered:
        return
    best = plan.estimates.prediction(ordered[0]).step_time
    overlapping = [
        index
        for index in ordered
        if index not in chosen and plan.estimates.prediction(index).step_time.overlaps(best)
    ]
    seen = {plan.layout(index).family for index in chosen}
    later = []
    for index in overlapping:
        family = plan.layout(index).family
        if family in seen:
            later.append(index)
        else:
            seen.add(family)
            yield index
    yield from later


def single_layouts(layouts: list[LayoutSpec], more: LayoutSpec | None) -> list[LayoutSpec]:
    """``layouts`` with ``more`` ahead, each once."""
    ahead = [more] if more is not None else []
    return list(dict.fromkeys(ahead + layouts))
