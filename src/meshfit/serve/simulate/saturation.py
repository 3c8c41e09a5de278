"""The rate beyond which queues only grow: what replicas serve when one is always waiting."""

from collections.abc import Sequence
from dataclasses import replace

from meshfit.serve.simulate.fleet import serve_open_loop
from meshfit.serve.simulate.pools import Pool, Pools, TwoPools
from meshfit.serve.simulate.request import Request

_BATCHES = 6
"""Backlog of a replica, in requests that it holds at once: beginning and end are left out, and
between them its queue is never empty."""
_FROM, _TO = 0.25, 0.75


def saturation_rate_per_s(requests: Sequence[Request], pools: Pools) -> float:
    """Requests a second that ``pools`` complete at most, of the kind that ``requests`` are; of two
    pools, the slower one's. They are taken again from the start where more are needed."""
    if isinstance(pools, TwoPools):
        prompts = [replace(one, output_tokens=1, decode_steps=0) for one in requests]
        outputs = [replace(one, is_transferred=True) for one in requests]
        return min(_pool_rate(prompts, pools.prefill), _pool_rate(outputs, pools.decode))
    return _pool_rate(requests, pools)


def _pool_rate(requests: Sequence[Request], pool: Pool) -> float:
    """One replica's rate under a backlog, times their number."""
    count = max(100, _BATCHES * _requests_at_once(requests, pool))
    backlog = [
        replace(requests[number % len(requests)], number=number, arrival_s=0.0, ready_s=0.0)
        for number in range(count)
    ]
    served = serve_open_loop(backlog, replace(pool, replicas=1))[0].finished
    if not served:
        return 0.0
    first, last = int(_FROM * len(served)), int(_TO * len(served))
    begins_s, ends_s = served[first].finished_s, served[last].finished_s
    assert begins_s is not None and ends_s is not None
    if ends_s == begins_s:  # one step serves them all
        return pool.replicas * len(served) / ends_s
    return pool.replicas * (last - first) / (ends_s - begins_s)


def _requests_at_once(requests: Sequence[Request], pool: Pool) -> int:
    """What one replica holds at once, by its places and by the mean of contexts."""
    mean_context = sum(one.prompt_tokens + one.output_tokens / 2 for one in requests) / len(
        requests
    )
    by_cache = int(pool.scheduler.kv_capacity_tokens / mean_context) + 1
    return min(pool.scheduler.max_sequences, by_cache)
