"""What a step does to memory and to the network, operation by operation. Plain data, no PyTorch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import MEMORY_CATEGORIES, MemoryBreakdown

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One operation: its name, the phase of the step, and where in the model it runs."""

    operation: str
    phase: str
    module: str = ""
    layer: int | None = None
    stage: int | None = None
    micro_batch: int | None = None
    flops: int = 0


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One message of this rank: ``size_bytes`` is that of the whole tensor that it makes or divides.

    ``axis`` is the mesh axis whose ranks take part; ``peer`` the other rank of a send or receive.
    """

    moment: int
    kind: str
    axis: str
    size_bytes: int
    phase: str
    module: str


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One optimizer step of one rank.

    Change i adds ``change_bytes[i]`` (negative: frees) to block ``change_block[i]`` while
    ``moments[change_moment[i]]`` runs; in one moment frees come before births. A block has the
    category ``MEMORY_CATEGORIES[categories[block]]`` all its life.
    """

    moments: tuple[Moment, ...]
    change_moment: IntArray
    change_block: IntArray
    change_bytes: IntArray
    categories: IntArray
    collectives: tuple[Collective, ...]

    @property
    def flops(self) -> int:
        """Floating-point operations of all matmuls of the step, recomputed ones among them."""
        return sum(moment.flops for moment in self.moments)

    def peak(self) -> tuple[MemoryBreakdown, Moment]:
        """Bytes by category when their sum was highest after an operation, and that operation."""
        totals = self.totals()
        highest = int(totals.argmax())
        happened = self.change_moment <= highest
        by_category = np.zeros(len(MEMORY_CATEGORIES), dtype=np.int64)
        np.add.at(
            by_category,
            self.categories[self.change_block[happened]],
            self.change_bytes[happened],
        )
        categories = dict(zip(MEMORY_CATEGORIES, map(int, by_category), strict=True))
        return MemoryBreakdown(**categories), self.moments[highest]

    def totals(self) -> IntArray:
        """Bytes in use after each moment."""
        added = np.zeros(len(self.moments), dtype=np.int64)
        np.add.at(added, self.change_moment, self.change_bytes)
        totals: IntArray = np.cumsum(added)
        return totals
