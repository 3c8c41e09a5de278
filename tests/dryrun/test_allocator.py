"""The caching allocator's rules, and what holds of any sequence of requests."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.dryrun.allocator import (
    LARGE_SEGMENT_BYTES,
    MIB,
    SMALL_SEGMENT_BYTES,
    CachingAllocator,
    OutOfMemoryError,
    rounded_bytes,
    segment_size,
)


def test_requests_are_rounded_to_512_bytes() -> None:
    assert [rounded_bytes(n) for n in (1, 512, 513, 1024)] == [512, 512, 1024, 1024]


def test_segments_are_2_mib_20_mib_or_the_request_rounded_to_2_mib() -> None:
    sizes = [segment_size(n) for n in (512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB, 11 * MIB)]
    assert [size // MIB for size in sizes] == [2, 2, 20, 20, 10, 12]


def test_small_requests_share_a_segment_and_the_next_one_opens_another() -> None:
    allocator = CachingAllocator()
    for _ in range(4):
        allocator.allocate(512 * 1024)
    assert allocator.reserved_bytes == SMALL_SEGMENT_BYTES
    allocator.allocate(512)
    assert allocator.reserved_bytes == 2 * SMALL_SEGMENT_BYTES


def test_a_large_block_is_split_only_when_more_than_1_mib_is_left() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(12 * MIB))
    kept = allocator.allocate(11 * MIB)  # 1 MiB would be left: the block stays whole
    assert kept.size_bytes == 12 * MIB
    allocator.free(kept)
    assert allocator.allocate(11 * MIB - 512).size_bytes == 11 * MIB - 512


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    allocator = CachingAllocator()
    large, small = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(30 * MIB - MIB // 2).address == small.address
    assert allocator.reserved_bytes == 70 * MIB


def test_freed_neighbours_become_one_block() -> None:
    allocator = CachingAllocator()
    parts = [allocator.allocate(5 * MIB) for _ in range(4)]
    assert allocator.reserved_bytes == LARGE_SEGMENT_BYTES
    for part in (parts[0], parts[2], parts[1], parts[3]):
        allocator.free(part)
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == LARGE_SEGMENT_BYTES


def test_an_expandable_segment_grows_by_what_is_missing_and_fixed_ones_pile_up() -> None:
    fixed, expandable = CachingAllocator(), CachingAllocator(expandable=True)
    for allocator in (fixed, expandable):
        for size in (40, 42, 44):
            allocator.free(allocator.allocate(size * MIB))
    assert fixed.reserved_bytes == (40 + 42 + 44) * MIB
    assert expandable.reserved_bytes == 60 * MIB


def test_unused_segments_go_before_memory_runs_out() -> None:
    allocator = CachingAllocator(capacity_bytes=50 * MIB)
    allocator.free(allocator.allocate(40 * MIB))
    allocator.allocate(44 * MIB)
    assert allocator.reserved_bytes == 44 * MIB
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(20 * MIB)


REQUESTS = st.lists(
    st.tuples(
        st.one_of(st.integers(1, 4 * MIB), st.integers(1, 64 * MIB)),
        st.integers(0, 30),
    ),
    max_size=60,
)
"""Each: a size, and which of the blocks in use is freed before it (none when there are fewer)."""


@given(requests=REQUESTS, expandable=st.booleans())
def test_blocks_never_overlap_and_all_of_a_segment_is_free_again_at_the_end(
    requests: list[tuple[int, int]], expandable: bool
) -> None:
    allocator = CachingAllocator(expandable=expandable)
    used = []
    for size, victim in requests:
        if victim < len(used):
            allocator.free(used.pop(victim))
        used.append(allocator.allocate(size))
        ranges = sorted((b.pool.is_small, b.address, b.address + b.size_bytes) for b in used)
        for (pool, _, end), (next_pool, start, _) in pairwise(ranges):
            assert pool != next_pool or end <= start
        assert allocator.allocated_bytes == sum(b.size_bytes for b in used)
        assert allocator.allocated_bytes <= allocator.reserved_bytes
    for block in used:
        allocator.free(block)
    assert allocator.allocated_bytes == 0
    allocator.release_unused()
    assert allocator.reserved_bytes == 0
