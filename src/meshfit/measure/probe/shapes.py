"""Which groups of ranks are measured, and which ranks are in them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod

Members = tuple[int, ...]


def shapes(level_sizes: Sequence[int]) -> list[Members]:
    """Shapes of groups, the smallest first: halves of the innermost level down to pairs, and each
    outer level whole or not at all."""
    options = [_halves(level_sizes[0]), *({1, size} for size in level_sizes[1:])]
    found = [members for members in product(*map(sorted, options)) if prod(members) > 1]
    return sorted(found, key=lambda members: (prod(members), members[::-1]))


def _halves(size: int) -> set[int]:
    found = {1, size}
    while size % 2 == 0:
        size //= 2
        found.add(size)
    return found


def groups(level_sizes: Sequence[int], members: Members) -> list[list[int]]:
    """The groups of one shape: together they hold every rank once, neighbours together."""
    by_key: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in range(prod(level_sizes)):
        apart = zip(places(level_sizes, rank), members, strict=True)
        by_key[tuple(place // here for place, here in apart)].append(rank)
    return list(by_key.values())


def places(level_sizes: Sequence[int], rank: int) -> Iterator[int]:
    """Which member of its domain a rank is (in), level by level."""
    for size in level_sizes:
        yield rank % size
        rank //= size


def pairs(level_sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Links that are measured alone, as first rank, second rank and level: all pairs of an
    innermost domain of up to eight, neighbours of a larger one; on outer levels same-placed ranks
    of neighbouring domains."""
    found = []
    inside = 1
    for level, size in enumerate(level_sizes):
        domain = inside * size
        for first in range(0, prod(level_sizes), domain):
            starts = range(first, first + domain, inside)
            for low, high in _pairs_of(list(starts), all_of_them=level == 0 and size <= 8):
                found += [(low + k, high + k, level) for k in range(inside)]
        inside = domain
    return found


def _pairs_of(starts: list[int], *, all_of_them: bool) -> list[tuple[int, int]]:
    if all_of_them:
        return [(a, b) for i, a in enumerate(starts) for b in starts[i + 1 :]]
    return list(pairwise(starts))
