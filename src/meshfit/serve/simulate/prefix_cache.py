"""Segments of prompts whose blocks outlive the requests that computed them."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.serve.simulate.request import SegmentKey


@dataclass(kw_only=True, slots=True)
class _Segment:
    blocks: int
    users: int


class PrefixCache:
    """Blocks of shared segments; those that no request uses stay until room is needed, and the
    longest unused go first.

    Attributes:
        used_blocks: blocks of segments that some request uses.
        idle_blocks: blocks of the others.
    """

    __slots__ = ("_segments", "idle_blocks", "used_blocks")

    def __init__(self) -> None:
        self._segments: OrderedDict[SegmentKey, _Segment] = OrderedDict()
        self.used_blocks = 0
        self.idle_blocks = 0

    def cached(self, prefix: Sequence[SegmentKey]) -> int:
        """How many leading segments of ``prefix`` are cached."""
        for count, key in enumerate(prefix):
            if key not in self._segments:
                return count
        return len(prefix)

    def idle_blocks_in(self, segments: Sequence[SegmentKey]) -> int:
        """Blocks of cached ``segments`` that would leave the idle ones if a request used them."""
        found = (self._segments[key] for key in segments)
        return sum(segment.blocks for segment in found if segment.users == 0)

    def publish(self, key: SegmentKey, blocks: int) -> bool:
        """A request's own ``blocks`` become a shared segment, which it goes on using; False, and
        nothing happens, where another one was first."""
        if key in self._segments:
            return False
        self._segments[key] = _Segment(blocks=blocks, users=1)
        self.used_blocks += blocks
        return True

    def use(self, key: SegmentKey) -> None:
        """One more request uses a cached segment."""
        found = self._segments[key]
        if found.users == 0:
            self.idle_blocks -= found.blocks
            self.used_blocks += found.blocks
        found.users += 1

    def leave(self, key: SegmentKey) -> None:
        """A request that used a segment gives it up."""
        found = self._segments[key]
        found.users -= 1
        if found.users == 0:
            self.used_blocks -= found.blocks
            self.idle_blocks += found.blocks
            self._segments.move_to_end(key)

    def shrink(self, most_idle_blocks: int) -> None:
        """Forgets idle segments until at most so many blocks are idle."""
        if self.idle_blocks <= most_idle_blocks:
            return
        for key in [key for key, segment in self._segments.items() if segment.users == 0]:
            self.idle_blocks -= self._segments.pop(key).blocks
            if self.idle_blocks <= most_idle_blocks:
                return
