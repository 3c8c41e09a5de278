"""Heartbeats: one small file a rank, which says what the rank does and how far it is.

A worker calls ``HeartbeatWriter.beat`` when it enters a phase, at every step, and around whatever
makes it wait for other ranks. The launcher reads them: when nothing moves any more, the rank that
does *not* wait is the one that holds up the rest.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_core

from meshfit.record.files import encode

HEARTBEAT_FOLDER = "heartbeats"
"""Name of the folder of heartbeats inside the folder of a run."""

STARTUP_PHASES = ("import", "init")
"""Phases before a rank has met the others: a failure in them is one of launching."""

FINISHED_PHASE = "end"
"""Phase of a rank that has nothing left to do."""

_BYTES = 256
"""Size of a heartbeat's file: a beat covers the one before it whole."""


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

    Every beat is in the file when ``beat`` returns, also of a rank that is killed a moment later. It
    is written in place, which takes microseconds: a rename costs milliseconds on some file systems.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        path = folder / HEARTBEAT_FOLDER / f"rank-{rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)
        self._rank = rank

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
        os.pwrite(self._file.fileno(), encode(heartbeat).ljust(_BYTES), 0)

    def close(self) -> None:
        """Closes the file; the last beat stays in it."""
        self._file.close()


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
