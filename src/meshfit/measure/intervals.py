"""Algebra of sets of moments: sorted, disjoint intervals of seconds. Free of PyTorch."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

Interval = tuple[float, float]
"""Begin and end in seconds, begin first."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The moments that lie in any of ``intervals``; empty ones vanish."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def subtract(whole: Sequence[Interval], holes: Sequence[Interval]) -> list[Interval]:
    """The moments of ``whole`` that are in none of ``holes``; both are unions."""
    left: list[Interval] = []
    first = 0
    for whole_begin, end in whole:
        begin = whole_begin
        while first < len(holes) and holes[first][1] <= begin:
            first += 1
        for hole_begin, hole_end in holes[first:]:
            if hole_begin >= end:
                break
            if hole_begin > begin:
                left.append((begin, hole_begin))
            begin = max(begin, hole_end)
        if begin < end:
            left.append((begin, end))
    return left


def clip(intervals: Sequence[Interval], begin: float, end: float) -> list[Interval]:
    """The moments of a union between ``begin`` and ``end``, none if that is no interval."""
    inside: list[Interval] = []
    if end <= begin:
        return inside
    for index in range(bisect_right(intervals, begin, key=itemgetter(1)), len(intervals)):
        one_begin, one_end = intervals[index]
        if one_begin >= end:
            break
        inside.append((max(begin, one_begin), min(end, one_end)))
    return inside


def seconds(intervals: Iterable[Interval]) -> float:
    """How long a union is."""
    return sum(end - begin for begin, end in intervals)
