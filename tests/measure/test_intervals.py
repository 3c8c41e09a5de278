from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from meshfit.measure.intervals import Interval, clip, seconds, subtract, union

MOMENTS = 24
WHOLE = st.lists(
    st.tuples(st.integers(0, MOMENTS), st.integers(0, MOMENTS)).map(
        lambda ends: (float(min(ends)), float(max(ends)))
    ),
    max_size=8,
)


def cells(intervals: list[Interval]) -> set[int]:
    """The unit cells that intervals with whole ends cover."""
    return {cell for begin, end in intervals for cell in range(int(begin), int(end))}


@given(WHOLE)
def test_a_union_is_sorted_disjoint_and_covers_the_same_moments(intervals: list[Interval]) -> None:
    merged = union(intervals)
    assert cells(merged) == cells(intervals)
    assert all(one[1] < other[0] for one, other in pairwise(merged))
    assert seconds(merged) == len(cells(intervals))


@given(WHOLE, WHOLE)
def test_a_difference_is_that_of_sets(one: list[Interval], other: list[Interval]) -> None:
    assert cells(subtract(union(one), union(other))) == cells(one) - cells(other)


@given(WHOLE, st.integers(0, MOMENTS), st.integers(0, MOMENTS))
def test_a_clipped_union_lies_between_the_ends(
    intervals: list[Interval], begin: int, end: int
) -> None:
    assert cells(clip(union(intervals), begin, end)) == cells(intervals) & set(range(begin, end))
