"""Whether a launch still moves, and if not, which rank holds it up."""

import re
from collections.abc import Mapping

from meshfit.record.heartbeat import FINISHED_PHASE, STARTUP_PHASES, Heartbeat

STARTUP_PATIENCE_S = 300.0
"""Importing and meeting the others may take this long whatever is asked of a step: a busy host is
slow to start, and that is no hang."""

_WAITS = re.compile(r"torch/(distributed|nn/parallel)/|torch/autograd/graph\.py")
"""Innermost Python frame of a rank that waits: a collective, or a backward, inside of which DDP's
C++ waits."""

_Standing = dict[int, tuple[str, int, bool]]


class ProgressWatch:
    """Tells from successive heartbeats for how long nothing has moved."""

    def __init__(self, *, num_ranks: int, hang_s: float, now_s: float) -> None:
        self._num_ranks = num_ranks
        self._hang_s = hang_s
        self._seen: _Standing = {}
        self._moved_at_s = now_s

    def hangs(self, heartbeats: Mapping[int, Heartbeat], now_s: float) -> bool:
        """Whether no rank has changed phase, step or waiting for as long as it may stand still."""
        standing = {rank: (b.phase, b.step, b.waiting) for rank, b in heartbeats.items()}
        if standing != self._seen:
            self._seen, self._moved_at_s = standing, now_s
        return now_s - self._moved_at_s > self.patience_s

    @property
    def patience_s(self) -> float:
        """How long nothing may move, in seconds: looser until every rank has met the others."""
        phases = [phase for phase, _, _ in self._seen.values()]
        starting = len(phases) < self._num_ranks or any(p in STARTUP_PHASES for p in phases)
        return max(self._hang_s, STARTUP_PATIENCE_S) if starting else self._hang_s


def culprit(heartbeats: Mapping[int, Heartbeat], num_ranks: int) -> int | None:
    """The rank that holds up the others.

    A rank that has said nothing, if others have; else, of the ranks that neither wait nor are
    finished, the one furthest behind. None when every rank waits (they wait for different things)
    or none has said anything.
    """
    silent = [rank for rank in range(num_ranks) if rank not in heartbeats]
    if silent:
        return silent[0] if heartbeats else None
    active = [b for b in heartbeats.values() if not b.waiting and b.phase != FINISHED_PHASE]
    if not active:
        return None
    return min(active, key=lambda beat: (beat.step, beat.time)).rank


def culprit_by_stacks(stack_tops: Mapping[int, str], num_ranks: int) -> tuple[int, str] | None:
    """The rank that holds up others of which all say that they wait, and how that is known.

    Every rank was asked for its Python stack. One that does not answer is stopped or stuck below
    Python; one that is not inside communication is what the others wait for. None when all are, or
    none was asked.
    """
    if not stack_tops:
        return None
    silent = [rank for rank in range(num_ranks) if rank not in stack_tops]
    if silent:
        return silent[0], "does not answer a signal: it is stopped, or stuck below Python"
    busy = [rank for rank in range(num_ranks) if not _WAITS.search(stack_tops[rank])]
    return (busy[0], f"is at {stack_tops[busy[0]]}") if busy else None


def describe(heartbeats: Mapping[int, Heartbeat], num_ranks: int) -> str:
    """Where every rank stands: every rank's own clause, joined by semicolons."""
    return "; ".join(_describe_rank(rank, heartbeats.get(rank)) for rank in range(num_ranks))


def _describe_rank(rank: int, heartbeat: Heartbeat | None) -> str:
    if heartbeat is None:
        return f"rank {rank} has said nothing"
    verb = "waits for others" if heartbeat.waiting else "is busy"
    return f"rank {rank} {verb} in phase {heartbeat.phase}, step {heartbeat.step}"
