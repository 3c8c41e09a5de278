"""KV cache of one rank: bytes of a request by length, and how many requests a pool holds.

Layers that see every token keep ``ceil(tokens / page)`` pages a request. A layer with a sliding
window needs its window only; an engine that frees pages behind it keeps one page more and the tokens
of one step, one that does not keeps them all. A recurrent layer keeps a state whatever the length.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.serve.memory.shards import LayerShards
from meshfit.serve.setting.budget import ServingBudget
from meshfit.workload.blocks.block import ELEMENT_BYTES, Block


@dataclass(frozen=True, kw_only=True)
class CachedTokens:
    """Equal caches of one rank: bytes a token, and how many tokens a layer needs (None: all)."""

    bytes_per_token: float
    window: int | None


@dataclass(frozen=True, kw_only=True)
class KvCache:
    """What requests take of one rank's memory.

    Attributes:
        caches: by window, over all layers of the rank.
        state_bytes: of recurrent layers, a request.
        page_tokens: of one page.
        step_tokens: tokens that one step may add to a request before pages are freed.
        frees_behind_window: the engine's policy.
    """

    caches: tuple[CachedTokens, ...]
    state_bytes: float
    page_tokens: int
    step_tokens: int
    frees_behind_window: bool

    @property
    def bytes_per_token(self) -> float:
        """Of every layer in full."""
        return sum(cache.bytes_per_token for cache in self.caches)

    @property
    def has_windows(self) -> bool:
        return any(cache.window is not None for cache in self.caches)

    def lower_bytes(self, tokens: int) -> float:
        """Of a request that keeps what its layers will read again, and nothing else."""
        held = sum(
            cache.bytes_per_token * (tokens if cache.window is None else min(tokens, cache.window))
            for cache in self.caches
        )
        return held + self.state_bytes

    def upper_bytes(self, tokens: int) -> float:
        """Of a request whose windowed layers keep a page for every token."""
        return self.bytes_per_token * self._whole_pages(tokens) + self.state_bytes

    def request_bytes(self, tokens: int) -> float:
        """Of a request under the engine's policy."""
        if not self.frees_behind_window:
            return self.upper_bytes(tokens)
        held = sum(
            cache.bytes_per_token * self._kept_tokens(tokens, cache.window) for cache in self.caches
        )
        return held + self.state_bytes

    def pool_tokens(self, pool_bytes: float, request_tokens: int) -> int:
        """Tokens that a pool holds of requests of that length; whole pages.

        Where every layer keeps every token the length does not matter: pages of the pool times
        their tokens, as vLLM's log says it.
        """
        if pool_bytes <= 0:
            return 0
        if not self.has_windows and not self.state_bytes:
            pages = int(pool_bytes // (self.bytes_per_token * self.page_tokens))
            return pages * self.page_tokens
        return int(pool_bytes / self.request_bytes(request_tokens) * request_tokens)

    def requests(self, pool_bytes: float, request_tokens: int) -> int:
        """Requests of that length that a pool holds at once: by whole pages, not by tokens."""
        taken = self.request_bytes(request_tokens)
        return int(max(0.0, pool_bytes) // taken) if taken > 0 else 2**31

    def _whole_pages(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens) * self.page_tokens

    def _kept_tokens(self, tokens: int, window: int | None) -> int:
        if window is None:
            return self._whole_pages(tokens)
        in_flight = self._whole_pages(window - 1 + self.step_tokens) + self.page_tokens
        return min(self._whole_pages(tokens), in_flight)


def kv_cache(groups: Sequence[LayerShards], *, tp: int, budget: ServingBudget) -> KvCache:
    """The cache of a stage's layers on one of ``tp`` ranks.

    Heads are shared out down to one a rank and copied beyond; a latent lies on every rank; the
    state of recurrent layers is cut by heads.
    """
    blocks: Counter[Block] = Counter()
    for group in groups:
        for _, block in group.layer.blocks:
            blocks[block] += group.count
    by_window: dict[int | None, float] = {}
    for block, count in blocks.items():
        for cache in block.caches:
            each = cache.bytes_per_token(tp) * budget.cache_element_bytes / ELEMENT_BYTES
            by_window[cache.window] = by_window.get(cache.window, 0.0) + count * each
    return KvCache(
        caches=tuple(
            CachedTokens(bytes_per_token=size, window=window) for window, size in by_window.items()
        ),
        state_bytes=sum(count * block.state_bytes / tp for block, count in blocks.items()),
        page_tokens=budget.page_tokens,
        step_tokens=budget.step_tokens,
        frees_behind_window=budget.frees_behind_window,
    )
