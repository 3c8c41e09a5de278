"""Which groups of ranks are measured, and which ranks are in them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from math import prod

Members = tuple[int, ...]

FULLY_PAIRED = 8
"""Members of a domain up to which every pair of them is measured."""


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
    """Links that are measured alone, as sending rank, receiving rank and level: all pairs of up to
    eight members of a domain, neighbours of more; on outer levels same-placed ranks, both ways, for
    routes can differ."""
    found = []
    inside = 1
    for level, size in enumerate(level_sizes):
        domain = inside * size
        for first in range(0, prod(level_sizes), domain):
            starts = range(first, first + domain, inside)
            for low, high in _pairs_of(list(starts)):
                ways = [(low, high)] if level == 0 else [(low, high), (high, low)]
                found += [(a + k, b + k, level) for a, b in ways for k in range(inside)]
        inside = domain
    return found


def _pairs_of(starts: list[int]) -> list[tuple[int, int]]:
    return list(combinations(starts, 2) if len(starts) <= FULLY_PAIRED else pairwise(starts))
