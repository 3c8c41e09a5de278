"""A log of memory blocks over one step, and the composition of memory at its highest.

Plain arithmetic, free of PyTorch: ``tensors`` decides what a block is and when it lives; this
file adds up. Nothing is added up before it is asked for, so what becomes known late about a block
(its category, or that it was there all along) holds for its whole life: a gradient is a gradient
from the moment its bytes exist, although only the optimizer's step tells it from a temporary.
"""

from array import array
from dataclasses import dataclass

import numpy as np

from meshfit.breakdown import MEMORY_CATEGORIES, MemoryBreakdown


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When something happened inside a step: the operation just run, and the phase it was in."""

    operation: str
    phase: str


class Ledger:
    """Births, resizes and deaths of blocks, between moments that are marked one after another.

    What happens before the first ``mark`` was there from the start.
    """

    def __init__(self) -> None:
        self._moments: list[Moment] = []
        self._sizes_bytes: list[int] = []
        self._categories: list[int] = []
        self._births: list[int] = []
        """Block -> index of its first change."""
        # One entry a change: the moment it belongs to, the block, and how many bytes it adds.
        self._change_moment = array("q")
        self._change_block = array("q")
        self._change_bytes = array("q")

    def birth(self, size_bytes: int, category: str) -> int:
        """A block that comes to life now; returns the number it goes by."""
        block = len(self._sizes_bytes)
        self._sizes_bytes.append(0)
        self._categories.append(MEMORY_CATEGORIES.index(category))
        self._births.append(len(self._change_bytes))
        self._change(block, size_bytes)
        return block

    def resize(self, block: int, size_bytes: int) -> None:
        """A block has another size from now on; 0 ends it, or lets it wait to be filled again."""
        if size_bytes != self._sizes_bytes[block]:
            self._change(block, size_bytes)

    def backdate(self, block: int) -> None:
        """A block was there, in its first size, from the start."""
        self._change_moment[self._births[block]] = 0

    def assign(self, block: int, category: str) -> None:
        """A block's category, for its whole life."""
        self._categories[block] = MEMORY_CATEGORIES.index(category)

    def category(self, block: int) -> str:
        """The category that a block has at present."""
        return MEMORY_CATEGORIES[self._categories[block]]

    def mark(self, operation: str, phase: str) -> None:
        """End a moment: the changes since the last mark are what ``operation`` did."""
        self._moments.append(Moment(operation=operation, phase=phase))

    def live(self) -> MemoryBreakdown:
        """Bytes by category after the last change."""
        return self._composition(len(self._moments))

    def peak(self) -> tuple[MemoryBreakdown, Moment]:
        """Bytes by category at the marked moment when their sum was highest (the first such)."""
        changes = np.zeros(len(self._moments) + 1, dtype=np.int64)
        np.add.at(changes, np.asarray(self._change_moment), np.asarray(self._change_bytes))
        highest = int(np.cumsum(changes)[: len(self._moments)].argmax())
        return self._composition(highest), self._moments[highest]

    def _change(self, block: int, size_bytes: int) -> None:
        self._change_moment.append(len(self._moments))
        self._change_block.append(block)
        self._change_bytes.append(size_bytes - self._sizes_bytes[block])
        self._sizes_bytes[block] = size_bytes

    def _composition(self, moment: int) -> MemoryBreakdown:
        """Sum of all changes up to and with a moment, by category."""
        happened = np.asarray(self._change_moment) <= moment
        categories = np.asarray(self._categories, dtype=np.int64)[np.asarray(self._change_block)]
        totals = np.zeros(len(MEMORY_CATEGORIES), dtype=np.int64)
        np.add.at(totals, categories[happened], np.asarray(self._change_bytes)[happened])
        return MemoryBreakdown(**dict(zip(MEMORY_CATEGORIES, map(int, totals), strict=True)))
