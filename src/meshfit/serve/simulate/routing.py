"""How requests are shared out over replicas."""

from collections.abc import Sequence
from typing import Literal, Protocol

from meshfit.serve.simulate.replica import Replica

Policy = Literal["round_robin", "least_outstanding"]
"""In turn, or to the replica with the fewest unfinished requests (the first of several)."""


class Router(Protocol):
    """Chooses a replica for a request that arrives now."""

    def choose(self, replicas: Sequence[Replica], now_s: float) -> Replica:
        """One of ``replicas``, which has done everything until ``now_s``."""


class RoundRobin:
    """Replicas in turn, whatever they have to do."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, replicas: Sequence[Replica], now_s: float) -> Replica:
        replica = replicas[self._next]
        self._next = (self._next + 1) % len(replicas)
        if replica.ends_s <= now_s:
            replica.advance(now_s)
        return replica


class LeastOutstanding:
    """The replica with the fewest unfinished requests, the first of several."""

    def choose(self, replicas: Sequence[Replica], now_s: float) -> Replica:
        least = replicas[0]
        for replica in replicas:
            if replica.ends_s <= now_s:
                replica.advance(now_s)
            if replica.outstanding < least.outstanding:
                least = replica
        return least


def router(policy: Policy) -> Router:
    """A new router."""
    return RoundRobin() if policy == "round_robin" else LeastOutstanding()
