"""One of several arrays in each position, and positions that are alike."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def picked(which: IntArray, values: Sequence[FloatArray] | FloatArray) -> FloatArray:
    """``values[which[i]][i]`` in every position i, as ``np.choose`` has it, but faster."""
    if len(values) == 1:
        return np.asarray(values[0])
    return np.asarray(values)[which, np.arange(len(which))]


def largest(values: Sequence[FloatArray] | FloatArray) -> IntArray:
    """Which of ``values`` is largest in every position, the first of equals: as ``np.argmax`` over
    them, but faster."""
    most, which = np.array(values[0]), np.zeros(len(values[0]), dtype=np.int64)
    for index, other in enumerate(values[1:], start=1):
        which[other > most] = index
        np.maximum(most, other, out=most)
    return which


def alike(columns: Iterable[IntArray]) -> tuple[IntArray, IntArray]:
    """The first of every set of rows that have the same numbers (not negative) in all columns, and the
    set of every row."""
    code, codes = None, 1
    for column in columns:
        values = int(column.max(initial=0)) + 1
        if code is not None and codes * values > _MOST_CODES:
            _, code = np.unique(code, return_inverse=True)
            codes = int(code.max(initial=0)) + 1
        code = column if code is None else code * values + column
        codes *= values
    assert code is not None
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return first, which


_MOST_CODES = 2**62
