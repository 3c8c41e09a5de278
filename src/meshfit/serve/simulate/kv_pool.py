"""The KV cache of one replica: blocks that requests hold, and shared segments beside them.

Contexts of decoding requests grow by a token a step, and counting their blocks one by one would make
every step cost as much as there are requests. So the pool keeps the sum of tokens, from which an
upper bound of the blocks follows (a request wastes less than one block); blocks are counted one by
one only where the bound does not fit.
"""

from collections.abc import Iterable

from meshfit.serve.simulate.prefix_cache import PrefixCache
from meshfit.serve.simulate.request import Request


class KvPool:
    """Blocks of one replica.

    Attributes:
        capacity_blocks, block_tokens: how many blocks there are, and the size of one.
        held_tokens: tokens that requests hold, shared ones counted once.
        surely_free_tokens: tokens that requests can add together, however full their last blocks
            are; negative where only counting can tell.
        prefixes: segments that requests share.
    """

    __slots__ = (
        "_most_waste",
        "block_tokens",
        "capacity_blocks",
        "held_tokens",
        "prefixes",
        "surely_free_tokens",
    )

    def __init__(self, *, capacity_blocks: int, block_tokens: int) -> None:
        self.capacity_blocks = capacity_blocks
        self.block_tokens = block_tokens
        self._most_waste = block_tokens - 1.0
        self.held_tokens = 0.0
        self.surely_free_tokens = float(capacity_blocks * block_tokens)
        self.prefixes = PrefixCache()

    def blocks_of(self, tokens: float) -> int:
        """Blocks that ``tokens`` of one request fill."""
        return -int(-tokens // self.block_tokens)

    def shared_tokens(self, request: Request) -> int:
        """Tokens of a request that lie in shared blocks."""
        if not request.shared_segments:
            return 0
        return request.shared_segments * self._segment_blocks(request) * self.block_tokens

    def fits(self, own_contexts: Iterable[float], *, more_shared_blocks: int = 0) -> bool:
        """Whether requests of these own tokens fit, and so many blocks more of shared segments."""
        own_blocks = sum(map(self.blocks_of, own_contexts))
        shared_blocks = self.prefixes.used_blocks + more_shared_blocks
        return own_blocks + shared_blocks <= self.capacity_blocks

    def reusable_segments(self, request: Request) -> int:
        """Leading segments that need not be computed; the last token of a prompt always is."""
        if not request.prefix:
            return 0
        most = (request.prompt_tokens - 1) // request.segment_tokens
        return self.prefixes.cached(request.prefix[:most])

    def idle_blocks_of(self, request: Request, segments: int) -> int:
        """Blocks of its leading ``segments`` that nobody uses now."""
        return self.prefixes.idle_blocks_in(request.prefix[:segments])

    def hold(self, request: Request, context_tokens: float, segments: int) -> None:
        """A request takes blocks for its context, sharing its leading ``segments``."""
        tokens = context_tokens
        if segments:
            tokens += self.idle_blocks_of(request, segments) * self.block_tokens
            for key in request.prefix[:segments]:
                self.prefixes.use(key)
            request.shared_segments = segments
            tokens -= self.shared_tokens(request)
        self.held_tokens += tokens
        self.surely_free_tokens -= tokens + self._most_waste
        if self.prefixes.idle_blocks:
            self._evict()

    def publish(self, request: Request) -> None:
        """A computed prompt's segments become shared ones, up to the first that already is. It holds
        as many tokens as before."""
        if not request.prefix:
            return
        whole = request.prompt_tokens // request.segment_tokens
        for key in request.prefix[request.shared_segments : whole]:
            if not self.prefixes.publish(key, self._segment_blocks(request)):
                return
            request.shared_segments += 1

    def release(self, request: Request, context_tokens: float) -> None:
        """A request gives up its blocks; shared ones stay while there is room."""
        tokens = context_tokens
        if request.shared_segments:
            segments, used_before = request.shared_segments, self.prefixes.used_blocks
            tokens -= self.shared_tokens(request)
            for key in request.prefix[:segments]:
                self.prefixes.leave(key)
            tokens += (used_before - self.prefixes.used_blocks) * self.block_tokens
            request.shared_segments = 0
        self.held_tokens -= tokens
        self.surely_free_tokens += tokens + self._most_waste

    def grow(self, tokens: float) -> None:
        """Requests that hold blocks add ``tokens`` together."""
        self.held_tokens += tokens
        self.surely_free_tokens -= tokens
        if self.prefixes.idle_blocks:
            self._evict()

    def _segment_blocks(self, request: Request) -> int:
        return request.segment_tokens // self.block_tokens

    def _evict(self) -> None:
        """Idle segments make room for what requests may hold at most."""
        self.prefixes.shrink(max(0, int(self.surely_free_tokens)) // self.block_tokens)
