"""Times of collectives inside one node, as measured."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.tables.read import read_table

FloatArray = NDArray[np.float64]

FILE = "collectives.csv"
NUM_KEYS = 3


@dataclass(frozen=True)
class NodeCurve:
    """NCCL on so many accelerators of one node: logarithms of bytes and of seconds."""

    log_sizes: FloatArray
    log_seconds: FloatArray

    def seconds(self, size_bytes: FloatArray) -> FloatArray:
        """Seconds of a whole buffer; below the curve its floor, above it at its last bandwidth."""
        sizes = np.log2(np.maximum(size_bytes, 1.0))
        inside = np.interp(sizes, self.log_sizes, self.log_seconds)
        beyond = np.maximum(0.0, sizes - self.log_sizes[-1])
        return np.asarray(np.exp2(inside + beyond))


@cache
def node_curves(chip: str, collective: str) -> dict[int, NodeCurve]:
    """Ranks -> curve of one collective in the usual node of a chip; empty where none was measured."""
    sizes, rows = read_table(FILE, NUM_KEYS)
    return {
        int(ranks): NodeCurve(np.log2(sizes), np.log2(microseconds * 1e-6))
        for (of_chip, of_collective, ranks), microseconds in rows.items()
        if (of_chip, of_collective) == (chip, collective)
    }
