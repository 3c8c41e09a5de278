"""A pool of equal replicas fed with requests, in an open or a closed loop."""

import gc
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from meshfit.serve.simulate.pools import Pool
from meshfit.serve.simulate.replica import Replica
from meshfit.serve.simulate.request import Request
from meshfit.serve.simulate.routing import router

_NEVER = math.inf
_EVERYTHING_S = math.nextafter(_NEVER, 0.0)


def serve_open_loop(requests: Iterable[Request], pool: Pool) -> list[Replica]:
    """Replicas after all ``requests`` (in order of ``ready_s``) have been served, each arriving when
    it does, whatever the replicas are doing."""
    replicas = _replicas(pool)
    choose = router(pool.policy, replicas).choose
    with without_cycles():
        for request in requests:
            ready_s = request.ready_s
            choose(ready_s).receive(request, ready_s)
        for replica in replicas:
            replica.advance(_EVERYTHING_S)
    return replicas


def serve_closed_loop(
    requests: Sequence[Request], pool: Pool, *, concurrency: int, request_s: float
) -> list[Replica]:
    """Replicas after ``requests`` have been served, ``concurrency`` of them in flight at a time: the
    next is sent the moment one ends, and reaches a replica ``request_s`` later."""
    replicas = _replicas(pool)
    choose = router(pool.policy, replicas).choose
    clients = _Clients(requests, request_s)
    for _ in range(concurrency):
        clients.send(0.0)
    while True:
        first_to_end = min(replicas, key=lambda replica: replica.ends_s)
        if clients.next_ready_s == first_to_end.ends_s == _NEVER:
            return replicas
        if clients.next_ready_s <= first_to_end.ends_s:
            request = clients.arrive()
            choose(request.ready_s).receive(request, request.ready_s)
            if request.refused:
                clients.send(request.ready_s)
        else:
            _end_activity(first_to_end, clients.send)


@contextmanager
def without_cycles() -> Iterator[None]:
    """Python looks for cycles of objects in vain meanwhile: a simulation makes none, and many objects
    (a tenth of its time)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Clients:
    """Requests that have been sent and not yet reached a replica."""

    def __init__(self, requests: Iterable[Request], request_s: float) -> None:
        self._left = iter(requests)
        self._request_s = request_s
        self._sent: list[tuple[float, int, Request]] = []

    @property
    def next_ready_s(self) -> float:
        return self._sent[0][0] if self._sent else _NEVER

    def send(self, now_s: float) -> None:
        """Sends the next request, if one is left."""
        if (request := next(self._left, None)) is not None:
            request.arrival_s, request.ready_s = now_s, now_s + self._request_s
            heapq.heappush(self._sent, (request.ready_s, request.number, request))

    def arrive(self) -> Request:
        """The next request that reaches a replica."""
        return heapq.heappop(self._sent)[2]


def _end_activity(replica: Replica, send: Callable[[float], None]) -> None:
    now_s, before = replica.ends_s, len(replica.finished)
    replica.advance(now_s)
    for _ in replica.finished[before:]:
        send(now_s)


def _replicas(pool: Pool) -> list[Replica]:
    return [Replica(pool.scheduler, pool.table) for _ in range(pool.replicas)]
