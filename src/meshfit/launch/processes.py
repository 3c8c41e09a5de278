"""The processes of one launch: recording them, finding them again, ending every one.

torchrun puts each rank into a session of its own, so no one session or process group holds a
launch. What does is a unique name in the environment, which children inherit; the pid with its
creation time and the session are kept as a second way to the same processes.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pydantic_core

from meshfit.errors import RunError
from meshfit.record.files import write_json_atomically
from meshfit.record.variables import LAUNCH_VARIABLE

GRACE_S = 5.0
"""How long processes that are asked to end may take to do so."""

_POLL_S = 0.1
_KILL_PATIENCE_S = 30.0
_SAME_TIME_S = 1.0  # a creation time is computed from the clock, which may be set in between


@dataclass(frozen=True, kw_only=True)
class LaunchProcesses:
    """Who runs a launch.

    Attributes:
        name: value of ``LAUNCH_VARIABLE`` in the environment of all its processes.
        pid, created_at: torchrun's pid, and when it was created, in seconds since the epoch.
        session_id: session torchrun leads.
    """

    name: str
    pid: int
    created_at: float
    session_id: int

    @staticmethod
    def of_leader(pid: int, name: str) -> "LaunchProcesses":
        """Those of the launch ``name`` whose first process is ``pid``, leader of its session."""
        created_at = psutil.Process(pid).create_time()
        return LaunchProcesses(name=name, pid=pid, created_at=created_at, session_id=pid)


def write_processes(path: Path, processes: LaunchProcesses) -> None:
    """Records who runs, for whoever must clean up after a supervisor that was killed."""
    write_json_atomically(path, processes)


@contextmanager
def recorded(
    pid: int, name: str, record: Path, *, wait: Callable[[], object]
) -> Iterator[LaunchProcesses]:
    """The launch ``name`` that ``pid`` leads: while the block lasts, the file ``record`` says who
    runs; after it, however it ends, no process of the launch is left.

    Args:
        wait: returns when this process's own children among them have ended.

    Raises:
        RunError: a process cannot be ended.
    """
    processes = LaunchProcesses.of_leader(pid, name)
    write_processes(record, processes)
    try:
        yield processes
    finally:
        end(processes, grace_s=GRACE_S)
        wait()
        record.unlink(missing_ok=True)


def read_processes(path: Path) -> LaunchProcesses | None:
    """What ``write_processes`` recorded, None when the file holds no such thing."""
    try:
        document: dict[str, Any] = pydantic_core.from_json(path.read_bytes())
        return LaunchProcesses(**document)
    except (OSError, ValueError, TypeError):
        return None


def running(launch: LaunchProcesses) -> list[psutil.Process]:
    """The processes of ``launch`` that are alive (a zombie is not)."""
    session = launch.session_id if _leader_is_alive(launch) else None
    return [p for p in psutil.process_iter() if _belongs(p, launch.name, session) and _is_alive(p)]


def end(launch: LaunchProcesses, *, grace_s: float) -> list[int]:
    """Ends all processes of ``launch``: SIGTERM, and SIGKILL after ``grace_s``.

    Returns:
        Pids that had to be ended; returns only when none is left.

    Raises:
        RunError: a process survives SIGKILL (it hangs in the kernel), so that nothing measured
            beside it would be worth anything.
    """
    asked = running(launch)
    _send(asked, signal.SIGTERM)
    for _ in _while_running(launch, grace_s):
        pass
    for left in _while_running(launch, _KILL_PATIENCE_S):
        _send(left, signal.SIGKILL)
    if survivors := [process.pid for process in running(launch)]:
        raise RunError(
            f"processes {survivors} survive SIGKILL (stuck in the kernel or a driver): "
            "end them or restart the machine before measuring on it"
        )
    return sorted(process.pid for process in asked)


def _while_running(launch: LaunchProcesses, patience_s: float) -> Iterator[list[psutil.Process]]:
    """Yields what still runs, now and then, until nothing does or patience ends."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and (left := running(launch)):
        yield left
        time.sleep(_POLL_S)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # psutil raises it, too, where a pid was reused
            process.send_signal(number)


def _leader_is_alive(launch: LaunchProcesses) -> bool:
    try:
        created_at = psutil.Process(launch.pid).create_time()
    except psutil.NoSuchProcess:
        return False
    return bool(abs(created_at - launch.created_at) < _SAME_TIME_S)


def _belongs(process: psutil.Process, name: str, session: int | None) -> bool:
    try:
        if session is not None and os.getsid(process.pid) == session:
            return True
        return process.environ().get(LAUNCH_VARIABLE) == name
    except (psutil.Error, OSError):  # ended meanwhile, or another user's
        return False


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
