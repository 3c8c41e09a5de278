"""A trace's allocations served by the model of CUDA's caching allocator."""

from dataclasses import dataclass

from meshfit.dryrun.allocator import Block, CachingAllocator, OutOfMemoryError
from meshfit.dryrun.trace import Trace

STEPS = 2
"""Steps that are replayed: the second begins with the cache that the first one left."""


@dataclass(frozen=True, kw_only=True)
class AllocatorUse:
    """What the allocator held at most. ``allocated`` counts blocks, rounding included.

    Attributes:
        out_of_memory: whether a request failed for want of capacity; the figures are those until
            then.
    """

    allocated_bytes: int
    reserved_bytes: int
    expandable: bool
    out_of_memory: bool

    @property
    def fragmentation(self) -> float:
        """Share of what is reserved that no block uses at the peak of use, 0-1."""
        if not self.reserved_bytes:
            return 0.0
        return 1 - self.allocated_bytes / self.reserved_bytes


def replay(trace: Trace, *, expandable: bool, capacity_bytes: int | None = None) -> AllocatorUse:
    """Peaks of the allocator over ``STEPS`` steps like the traced one."""
    allocator = CachingAllocator(expandable=expandable, capacity_bytes=capacity_bytes)
    is_full = False
    try:
        _replay_steps(trace, allocator)
    except OutOfMemoryError:
        is_full = True
    return AllocatorUse(
        allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.peak_reserved_bytes,
        expandable=expandable,
        out_of_memory=is_full,
    )


def _replay_steps(trace: Trace, allocator: CachingAllocator) -> None:
    changes = list(
        zip(
            trace.change_moment.tolist(),
            trace.change_block.tolist(),
            trace.change_bytes.tolist(),
            strict=True,
        )
    )
    from_start = {block for moment, block, _ in changes if moment == 0}
    held: dict[int, tuple[Block, int]] = {}
    for step in range(STEPS):
        for moment, block, added in changes:
            if step == 0 or moment > 0:
                _change(allocator, held, block, added)
        for block in [block for block in held if block not in from_start]:
            allocator.free(held.pop(block)[0])


def _change(
    allocator: CachingAllocator, held: dict[int, tuple[Block, int]], block: int, added: int
) -> None:
    """Let a tensor grow or shrink: its new memory is there before its old one goes."""
    before = held.pop(block, None)
    size = added + (before[1] if before else 0)
    if size > 0:
        held[block] = (allocator.allocate(size), size)
    if before is not None:
        allocator.free(before[0])
