"""How requests are shared out over replicas."""

import itertools
import math
from collections.abc import Sequence
from typing import Protocol

from meshfit.serve.asked.routing import Policy
from meshfit.serve.simulate.replica import Replica


class Router(Protocol):
    """Chooses a replica for a request that arrives now."""

    def choose(self, now_s: float) -> Replica:
        """One of the replicas, which has done everything until ``now_s``."""


class RoundRobin:
    """Replicas in turn, whatever they have to do."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._turns = itertools.cycle(replicas)

    def choose(self, now_s: float) -> Replica:
        replica = next(self._turns)
        if replica.ends_s <= now_s:
            replica.advance(now_s)
        return replica


class LeastOutstanding:
    """The replica with the fewest unfinished requests, the first of several."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas

    def choose(self, now_s: float) -> Replica:
        least, fewest = self._replicas[0], math.inf
        for replica in self._replicas:
            if replica.ends_s <= now_s:
                replica.advance(now_s)
            if replica.outstanding < fewest:
                least, fewest = replica, replica.outstanding
        return least


def router(policy: Policy, replicas: Sequence[Replica]) -> Router:
    """A new router in front of ``replicas``."""
    return RoundRobin(replicas) if policy == "round_robin" else LeastOutstanding(replicas)
