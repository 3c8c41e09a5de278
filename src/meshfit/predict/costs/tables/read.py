"""Reading the tables that are shipped."""

import csv
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@cache
def read_table(name: str, num_keys: int) -> tuple[FloatArray, dict[tuple[str, ...], FloatArray]]:
    """Values of the columns behind the first ``num_keys``, and one row of numbers for each key."""
    lines = (
        files("meshfit.predict.costs.tables")
        .joinpath(name)
        .read_text(encoding="utf-8")
        .splitlines()
    )
    rows: Iterator[list[str]] = csv.reader(lines)
    header = next(rows)
    axis = np.array([float(cell) for cell in header[num_keys:]])
    return axis, {
        tuple(row[:num_keys]): np.array([float(cell) for cell in row[num_keys:]]) for row in rows
    }


def position(values: FloatArray, first_exponent: int, count: int) -> tuple[FloatArray, FloatArray]:
    """Index of the point below on a grid of powers of two, and the share of the way to the next.

    Values off the grid are taken at its edge.
    """
    at = np.clip(np.log2(np.maximum(values, 1.0)) - first_exponent, 0.0, count - 1.0)
    below = np.minimum(np.floor(at), count - 2.0)
    return below.astype(np.int64), at - below
