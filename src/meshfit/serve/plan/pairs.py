"""Which pairs of prefill and decode pools are worth a row, and how many replicas each has."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from meshfit.serve.asked.traffic import TrafficSpec
from meshfit.serve.load.served import ServedReplica
from meshfit.serve.load.two_pools import (
    DecodePool,
    PoolPair,
    PrefillPool,
    decode_pool,
    prefill_pool,
)

Pool = TypeVar("Pool", PrefillPool, DecodePool)


def pool_pairs(
    replicas: Iterable[ServedReplica], traffic: TrafficSpec, accelerators: int
) -> list[PoolPair]:
    """Pairs that share out all of ``accelerators``, one for each two kinds of replica: with the
    numbers of either that end most requests.

    Kinds that another one of as many accelerators beats in latency and throughput are left out.

    Args:
        replicas: one of each layout; what does not fit is in no pair.
    """
    prompt = max(traffic.prompt.mean_tokens - traffic.shared_prefix_tokens, 1.0)
    output = max(traffic.output.mean_tokens, 1.0)
    fitting = [one for one in replicas if one.fits and _size(one) < accelerators]
    prefill = _unbeaten(
        [prefill_pool(one, prompt) for one in fitting],
        lambda pool: (pool.prompt_s, -pool.requests_per_s),
    )
    decode = _unbeaten(
        [decode_pool(one, prompt, output) for one in fitting],
        lambda pool: (float(pool.tpot_s[0]), -pool.most_per_s),
    )
    return [
        best
        for one in prefill
        for other in decode
        if (best := _matched(one, other, accelerators)) is not None
    ]


def _matched(prefill: PrefillPool, decode: DecodePool, accelerators: int) -> PoolPair | None:
    """The numbers of replicas at which the slower pool ends most requests; None where no numbers of
    both take all accelerators."""
    pairs = [
        PoolPair(prefill=prefill, decode=decode, prefill_replicas=first, decode_replicas=second)
        for first, second in _shares(_size(prefill.replica), _size(decode.replica), accelerators)
    ]
    return max(pairs, key=lambda pair: pair.most_per_s, default=None)


def _shares(first_size: int, second_size: int, accelerators: int) -> Iterator[tuple[int, int]]:
    for first in range(1, accelerators // first_size + 1):
        left = accelerators - first * first_size
        if left and left % second_size == 0:
            yield first, left // second_size


def _unbeaten(pools: Sequence[Pool], scores: Callable[[Pool], tuple[float, float]]) -> list[Pool]:
    """Those that no other of their size beats in both scores (small is good)."""
    by_size: dict[int, list[tuple[tuple[float, float], Pool]]] = defaultdict(list)
    for pool in pools:
        by_size[_size(pool.replica)].append((scores(pool), pool))
    return [pool for same in by_size.values() for pool in _front(same)]


def _front(scored: list[tuple[tuple[float, float], Pool]]) -> Iterator[Pool]:
    """By the first score; each next one has to be better in the second."""
    best = float("inf")
    for (_, second), pool in sorted(scored, key=lambda one: one[0]):
        if second < best:
            best = second
            yield pool


def _size(replica: ServedReplica) -> int:
    return replica.layout.ranks_per_replica
