"""Matrices packed into one: q, k and v of GPT-2 and Phi-3, gate and up projection of Phi-3.

Tensor parallelism cuts each of them, so a rank's shard is its part of every one. To DTensor a shard
is a contiguous piece: the packed dimension therefore lies in the order of the shards, while files
and gradients of one process have it in the model's own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Box = tuple[slice, ...]


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Along ``dim`` matrices of ``sizes`` lie one after another; ``shards`` ranks cut each evenly."""

    dim: int
    sizes: Sequence[int]
    shards: int

    def pieces(self, box: Box) -> Iterator[tuple[Box, Box]]:
        """What ``box``, in the order of the shards, consists of.

        Yields (where a piece lies in the box, where it lies in the model's own order).
        """
        wanted = box[self.dim]
        start = 0
        for first, length in self._segments():
            begin, end = max(start, wanted.start), min(start + length, wanted.stop)
            if begin < end:
                inside = slice(begin - wanted.start, end - wanted.start)
                whole = slice(first + begin - start, first + end - start)
                yield self._at(_from_zero(box), inside), self._at(box, whole)
            start += length

    def _segments(self) -> Iterator[tuple[int, int]]:
        """(first row in the model's order, rows) of each part, in the order of the shards."""
        offsets = [sum(self.sizes[:index]) for index in range(len(self.sizes))]
        for shard in range(self.shards):
            for offset, size in zip(offsets, self.sizes, strict=True):
                part = size // self.shards
                yield offset + shard * part, part

    def _at(self, box: Box, part: slice) -> Box:
        return (*box[: self.dim], part, *box[self.dim + 1 :])


def pieces_of(box: Box, packing: Packing | None) -> Iterator[tuple[Box, Box]]:
    """As of ``Packing.pieces``; one piece where nothing is packed."""
    if packing is not None:
        yield from packing.pieces(box)
    else:
        yield _from_zero(box), box


def _from_zero(box: Box) -> Box:
    return tuple(slice(0, part.stop - part.start) for part in box)
