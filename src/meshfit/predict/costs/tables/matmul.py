"""Rates of matmuls by shape, as measured."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.tables.read import position, read_table

FloatArray = NDArray[np.float64]

FILE = "matmul.csv"
NUM_KEYS = 4
FIRST_EXPONENTS = (7, 7, 7)
"""The grid starts at 128 in m, n and k."""


@dataclass(frozen=True)
class MatmulTable:
    """Logarithms (base 2) of FLOP/s on a grid of powers of two over (m, n, k).

    ``[m, k] x [k, n]`` with the weight stored output dim first. Reduced to a median error of 3-7 %
    on shapes kept out of the reduction (90th percentile 6-17 %; ``tools/reduce_tables.py`` prints
    them, the tests look at a sample).
    """

    log_rates: FloatArray

    def rate(self, m: FloatArray, n: FloatArray, k: FloatArray) -> FloatArray:
        """FLOP/s of ``2 m n k``, linear between points in the logarithms of everything.

        Off the grid the rate at its edge: what is smaller than a tile is bound by memory anyway.
        """
        at = [
            position(np.asarray(values, dtype=np.float64), first, count)
            for values, first, count in zip(
                (m, n, k), FIRST_EXPONENTS, self.log_rates.shape, strict=True
            )
        ]
        (row, u), (column, v), (depth, w) = at
        near_k = [
            [
                self.log_rates[row + a, column + b, depth] * (1 - w)
                + self.log_rates[row + a, column + b, depth + 1] * w
                for b in (0, 1)
            ]
            for a in (0, 1)
        ]
        near_n = [low * (1 - v) + high * v for low, high in near_k]
        return np.asarray(np.exp2(near_n[0] * (1 - u) + near_n[1] * u))


@cache
def matmul_table(chip: str, precision: str) -> MatmulTable | None:
    """The table of a chip (``chips.CHIP_OF``) in ``bf16``, ``fp8`` or ``fp8_block``; 16-bit types
    share one. None where nothing was measured."""
    wanted = "bf16" if precision == "fp16" else precision
    _, rows = read_table(FILE, NUM_KEYS)
    found = {
        (int(m), int(n)): rates
        for (of_chip, of_precision, m, n), rates in rows.items()
        if (of_chip, of_precision) == (chip, wanted)
    }
    if not found:
        return None
    ms, ns = (sorted({key[axis] for key in found}) for axis in (0, 1))
    tflops = np.array([[found[m, n] for n in ns] for m in ms])
    return MatmulTable(np.log2(tflops * 1e12))
