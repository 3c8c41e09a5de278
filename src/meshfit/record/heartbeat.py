"""Heartbeats: one small file a rank, which says what the rank does and how far it is.

A worker calls ``HeartbeatWriter.beat`` when it enters a phase, at every step, and around whatever
makes it wait for other ranks. The launcher reads them: when nothing moves any more, the rank that
does *not* wait is the one that holds up the rest.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_core

from meshfit.record.files import write_json_atomically

HEARTBEAT_FOLDER = "heartbeats"
"""Name of the folder of heartbeats inside the folder of a run."""

STARTUP_PHASES = ("import", "init")
"""Phases before a rank has met the others: a failure in them is one of launching."""

FINISHED_PHASE = "end"
"""Phase of a rank that has nothing left to do."""


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """What one rank last said. ``time`` is in seconds since the epoch, on the rank's host."""

    rank: int
    pid: int
    phase: str
    step: int
    time: float
    waiting: bool
    """Whether the rank stands still until other ranks do something (a collective, a barrier)."""


class HeartbeatWriter:
    """Writes the heartbeat of this process's rank.

    The first beat of a phase is written at once. Within a phase at most one write happens per
    ``interval_s``, and the last beat is never lost: a thread writes it when its time has come, so
    that a rank which stops moving leaves its true state behind.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        *,
        interval_s: float = 0.25,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = folder / HEARTBEAT_FOLDER / f"rank-{rank}.json"
        self._rank = rank
        self._interval_s = interval_s
        self._clock = clock
        self._written_at = float("-inf")
        self._phase: str | None = None
        self._pending: Heartbeat | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(
            target=self._write_late_beats, name="heartbeat", daemon=True
        )
        self._thread.start()

    def beat(self, phase: str, step: int = 0, *, waiting: bool = False) -> None:
        """Says that this rank is in ``phase`` at ``step``, and whether it waits for others."""
        heartbeat = Heartbeat(
            rank=self._rank,
            pid=os.getpid(),
            phase=phase,
            step=step,
            time=time.time(),
            waiting=waiting,
        )
        with self._changed:
            self._pending = heartbeat
            if phase != self._phase or self._due_in_s() <= 0:
                self._write_pending()
            else:
                self._changed.notify()

    def close(self) -> None:
        """Writes the last beat and ends the thread."""
        with self._changed:
            self._closed = True
            self._write_pending()
            self._changed.notify()
        self._thread.join()

    def _due_in_s(self) -> float:
        return self._written_at + self._interval_s - self._clock()

    def _write_pending(self) -> None:
        if self._pending is None:
            return
        write_json_atomically(self._path, self._pending, durable=False)
        self._phase = self._pending.phase
        self._pending = None
        self._written_at = self._clock()

    def _write_late_beats(self) -> None:
        with self._changed:
            while not self._closed:
                if self._pending is None:
                    self._changed.wait()
                elif (due_in_s := self._due_in_s()) > 0:
                    self._changed.wait(due_in_s)
                else:
                    self._write_pending()


def read_heartbeats(folder: Path) -> dict[int, Heartbeat]:
    """Rank -> its last heartbeat, for every rank that has written one into the run ``folder``.

    A file that cannot be read as a heartbeat counts as none: heartbeats are hints, not results.
    """
    beats = (_read_heartbeat(path) for path in (folder / HEARTBEAT_FOLDER).glob("rank-*.json"))
    return {beat.rank: beat for beat in sorted(filter(None, beats), key=lambda beat: beat.rank)}


def _read_heartbeat(path: Path) -> Heartbeat | None:
    try:
        document: dict[str, Any] = pydantic_core.from_json(path.read_bytes())
        return Heartbeat(**document)
    except (OSError, ValueError, TypeError):
        return None
