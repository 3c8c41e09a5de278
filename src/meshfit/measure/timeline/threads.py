"""What a thread of the host did between two moments, as the kernel counts it."""

import os
import threading
import time
from dataclasses import dataclass

SCHEDSTAT = "/proc/self/task/{thread}/schedstat"
"""Linux's counts of one thread: ns on a core, ns ready to run and waiting for one, time slices."""


@dataclass(frozen=True, kw_only=True)
class ThreadMoment:
    """Where a thread stands: seconds it has run, and seconds it was ready and had no core (None where
    the kernel does not count them)."""

    thread: int
    running_s: float
    core_wait_s: float | None


class ThreadCounts:
    """Reads the counts of whichever thread asks; each thread's file is opened once."""

    def __init__(self) -> None:
        self._files: dict[int, int | None] = {}

    def now(self) -> ThreadMoment:
        """The calling thread's counts so far, as near as can be to the moment of the call. About 3 us.

        Waiting is read first: a thread mostly loses its core on the way back from a system call, and
        what it waits there comes after this moment.
        """
        thread = threading.get_native_id()
        if thread not in self._files:
            self._files[thread] = _opened(thread)
        core_wait_s = _core_wait_s(self._files[thread])
        return ThreadMoment(thread=thread, running_s=time.thread_time(), core_wait_s=core_wait_s)

    def close(self) -> None:
        """Close what was opened."""
        for file in self._files.values():
            if file is not None:
                os.close(file)
        self._files.clear()


def _opened(thread: int) -> int | None:
    try:
        return os.open(SCHEDSTAT.format(thread=thread), os.O_RDONLY)
    except OSError:
        return None


def _core_wait_s(file: int | None) -> float | None:
    return None if file is None else int(os.pread(file, 64, 0).split()[1]) / 1e9
