"""A model of PyTorch's caching allocator on CUDA: what it reserves for given allocations.

After ``c10/cuda/CUDACachingAllocator.cpp`` (PyTorch 2.13), with its default settings. Requests are
rounded to 512 B; up to 1 MiB they come from 2 MiB segments, up to 10 MiB from 20 MiB segments,
beyond that from a segment of their own rounded to 2 MiB. The smallest free block that is large
enough is taken (the one at the lowest address among equals), split where enough is left, and merged
with its free neighbours when it is freed. With expandable segments each pool is one segment that
grows by whole pages of 2 MiB (small) or 20 MiB (large).

Left out: streams (a block freed on another stream than it was made on comes back later), rounding
to powers of two, graphs, and garbage collection.
"""

import bisect
from dataclasses import dataclass, field

MIB = 2**20
SMALLEST_BLOCK_BYTES = 512
SMALL_REQUEST_BYTES = 1 * MIB
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
OWN_SEGMENT_BYTES = 10 * MIB
"""Requests from this size on get a segment of their own."""
OWN_SEGMENT_MULTIPLE_BYTES = 2 * MIB


class OutOfMemoryError(Exception):
    """A segment does not fit, even after every unused one was given back."""


@dataclass(slots=True, eq=False)
class Block:
    """A range of one segment, in use or free; neighbours are those of the same segment."""

    pool: "_Pool"
    address: int
    size_bytes: int
    is_free: bool = True
    previous: "Block | None" = field(default=None, repr=False)
    following: "Block | None" = field(default=None, repr=False)


@dataclass(slots=True, eq=False)
class _Pool:
    """Free blocks for small or for large requests, ordered by size, then address."""

    is_small: bool
    free: list[tuple[int, int]] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)
    """Address -> free block."""
    end: Block | None = None
    """With expandable segments: the block that lies at the end of what is mapped."""

    @property
    def page_bytes(self) -> int:
        return SMALL_SEGMENT_BYTES if self.is_small else LARGE_SEGMENT_BYTES

    def best_fit(self, size_bytes: int) -> Block | None:
        """The smallest free block of at least ``size_bytes``, taken out of the pool."""
        index = bisect.bisect_left(self.free, (size_bytes, 0))
        if index == len(self.free):
            return None
        return self.take(self.blocks[self.free[index][1]])

    def put(self, block: Block) -> None:
        block.is_free = True
        bisect.insort(self.free, (block.size_bytes, block.address))
        self.blocks[block.address] = block

    def take(self, block: Block) -> Block:
        block.is_free = False
        del self.free[bisect.bisect_left(self.free, (block.size_bytes, block.address))]
        return self.blocks.pop(block.address)


class CachingAllocator:
    """Serves allocations as CUDA's caching allocator would, and counts what it reserves."""

    def __init__(self, *, expandable: bool = False, capacity_bytes: int | None = None) -> None:
        self._expandable = expandable
        self._capacity_bytes = capacity_bytes
        self._small, self._large = _Pool(is_small=True), _Pool(is_small=False)
        self._next_address = 0
        self.reserved_bytes = 0
        self.allocated_bytes = 0
        """In blocks that are in use, rounding included."""
        self.peak_reserved_bytes = 0
        self.peak_allocated_bytes = 0

    def allocate(self, size_bytes: int) -> Block:
        """A block of at least ``size_bytes`` (greater than 0).

        Raises:
            OutOfMemoryError: it needs a segment that does not fit into the capacity.
        """
        rounded = rounded_bytes(size_bytes)
        pool = self._small if rounded <= SMALL_REQUEST_BYTES else self._large
        block = pool.best_fit(rounded) or self._grow(pool, rounded)
        self._split(block, rounded)
        self.allocated_bytes += block.size_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def free(self, block: Block) -> None:
        """Give back a block that ``allocate`` returned."""
        self.allocated_bytes -= block.size_bytes
        for neighbour in (block.previous, block.following):
            if neighbour is not None and neighbour.is_free:
                block.pool.take(neighbour)
                self._merge(block, neighbour)
        block.pool.put(block)

    def release_unused(self) -> None:
        """Give back every segment of which nothing is in use, as ``torch.cuda.empty_cache``."""
        for pool in (self._small, self._large):
            for block in list(pool.blocks.values()):
                if self._expandable:
                    self._unmap(pool, block)
                elif block.previous is None and block.following is None:
                    pool.take(block)
                    self.reserved_bytes -= block.size_bytes

    def _grow(self, pool: _Pool, size_bytes: int) -> Block:
        try:
            return (
                self._extend(pool, size_bytes)
                if self._expandable
                else self._segment(pool, size_bytes)
            )
        except OutOfMemoryError:
            self.release_unused()
        return (
            self._extend(pool, size_bytes) if self._expandable else self._segment(pool, size_bytes)
        )

    def _segment(self, pool: _Pool, size_bytes: int) -> Block:
        """A block that is a whole new segment."""
        segment_bytes = segment_size(size_bytes)
        self._reserve(segment_bytes)
        block = Block(pool, self._next_address, segment_bytes, is_free=False)
        self._next_address += segment_bytes
        return block

    def _extend(self, pool: _Pool, size_bytes: int) -> Block:
        """A block at the end of the pool's one segment, over the free one that may lie there."""
        last = pool.end
        at_hand = last.size_bytes if last is not None and last.is_free else 0
        added = _round_up(size_bytes - at_hand, pool.page_bytes)
        self._reserve(added)
        address = 0 if last is None else last.address + last.size_bytes
        block = Block(pool, address, added, is_free=False, previous=last)
        if last is not None:
            last.following = block
            if last.is_free:
                pool.take(last)
                self._merge(block, last)
        pool.end = block
        return block

    def _unmap(self, pool: _Pool, block: Block) -> None:
        """Give back the whole pages of a free block at the end of an expandable segment.

        CUDA's allocator unmaps pages inside as well and maps them again later; what that would
        save shows only when memory has run out.
        """
        pages = block.size_bytes // pool.page_bytes * pool.page_bytes
        if block is not pool.end or not pages:
            return
        pool.take(block)
        self.reserved_bytes -= pages
        block.size_bytes -= pages
        if block.size_bytes:
            pool.put(block)
            return
        pool.end = block.previous
        if block.previous is not None:
            block.previous.following = None

    def _reserve(self, size_bytes: int) -> None:
        reserved = self.reserved_bytes + size_bytes
        if self._capacity_bytes is not None and reserved > self._capacity_bytes:
            raise OutOfMemoryError
        self.reserved_bytes = reserved
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, reserved)

    def _split(self, block: Block, size_bytes: int) -> None:
        """Put what is left of ``block`` beyond ``size_bytes`` back, where it is worth a block."""
        rest_bytes = block.size_bytes - size_bytes
        pool = block.pool
        is_fine = pool.is_small or self._expandable
        if not (
            rest_bytes >= SMALLEST_BLOCK_BYTES if is_fine else rest_bytes > SMALL_REQUEST_BYTES
        ):
            return
        rest = Block(pool, block.address + size_bytes, rest_bytes)
        rest.previous, rest.following = block, block.following
        if block.following is not None:
            block.following.previous = rest
        block.following, block.size_bytes = rest, size_bytes
        if pool.end is block:
            pool.end = rest
        pool.put(rest)

    @staticmethod
    def _merge(block: Block, neighbour: Block) -> None:
        """Make ``neighbour``, which is in no pool, a part of ``block``."""
        if neighbour is block.previous:
            block.address = neighbour.address
            block.previous = neighbour.previous
            if block.previous is not None:
                block.previous.following = block
        else:
            block.following = neighbour.following
            if block.following is not None:
                block.following.previous = block
        block.size_bytes += neighbour.size_bytes
        if block.pool.end is neighbour:
            block.pool.end = block


def rounded_bytes(size_bytes: int) -> int:
    """What a request takes of a block: a multiple of 512 B."""
    return max(SMALLEST_BLOCK_BYTES, _round_up(size_bytes, SMALLEST_BLOCK_BYTES))


def segment_size(size_bytes: int) -> int:
    """Bytes of the segment made for a (rounded) request that no free block serves."""
    if size_bytes <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if size_bytes < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return _round_up(size_bytes, OWN_SEGMENT_MULTIPLE_BYTES)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
