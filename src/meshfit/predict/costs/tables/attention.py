"""Rates of fused attention by length, heads and head dim, as measured."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.tables.read import position, read_table

FloatArray = NDArray[np.float64]

FILE = "attention.csv"
NUM_KEYS = 3
FIRST_HEADS_EXPONENT = 2
FIRST_LENGTH_EXPONENT = 8


@dataclass(frozen=True)
class AttentionTable:
    """Logarithms (base 2) of FLOP/s over (sequences x heads, sequence length), powers of two.

    Causal forward attention of whole sequences, 16 bits, the fastest of the inference runtimes'
    kernels: FlashAttention 3 on Hopper, 2 on Ampere and Ada.
    """

    log_rates: FloatArray

    def rate(self, heads: FloatArray, length: FloatArray) -> FloatArray:
        """FLOP/s of what lies below the diagonal; off the grid that of its edge."""
        num_heads, num_lengths = self.log_rates.shape
        i, u = position(np.asarray(heads, dtype=np.float64), FIRST_HEADS_EXPONENT, num_heads)
        j, v = position(np.asarray(length, dtype=np.float64), FIRST_LENGTH_EXPONENT, num_lengths)
        few = self.log_rates[i, j] * (1 - v) + self.log_rates[i, j + 1] * v
        many = self.log_rates[i + 1, j] * (1 - v) + self.log_rates[i + 1, j + 1] * v
        return np.asarray(np.exp2(few * (1 - u) + many * u))


@cache
def attention_table(chip: str, head_dim: int) -> AttentionTable | None:
    """The table of a chip for the measured head dim nearest to ``head_dim`` (as a ratio); None
    where nothing was measured."""
    _, rows = read_table(FILE, NUM_KEYS)
    dims = sorted({int(dim) for of_chip, dim, _ in rows if of_chip == chip})
    if not dims:
        return None
    nearest = min(dims, key=lambda dim: abs(np.log2(dim / head_dim)))
    found = {
        int(heads): rates
        for (of_chip, dim, heads), rates in rows.items()
        if (of_chip, int(dim)) == (chip, nearest)
    }
    return AttentionTable(np.log2(np.array([found[heads] for heads in sorted(found)]) * 1e12))
