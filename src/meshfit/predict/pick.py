"""One of several arrays in each position."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def picked(which: IntArray, values: Sequence[FloatArray] | FloatArray) -> FloatArray:
    """``values[which[i]][i]`` in every position i: ``np.choose``, four times faster."""
    if len(values) == 1:
        return np.asarray(values[0])
    return np.asarray(values)[which, np.arange(len(which))]
