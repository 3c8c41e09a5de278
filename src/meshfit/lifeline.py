"""Ending with the parent: no process of a launch outlives the one that waits for it.

The lifeline is tied twice: torchrun's to the supervisor (``launch.agent``) and each rank's to
torchrun (``run.lifeline``). So when the supervisor is killed, however hard, torchrun goes with it
and the ranks go with torchrun, also out of a collective that would never return.
"""

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_POLL_S = 1.0


def end_with_parent(parent_pid: int) -> None:
    """From here on this process gets SIGKILL when its parent ends, and at once if it has already.

    On Linux the kernel sends the signal: the setting is kept through ``exec``, is not inherited by
    children, and fires when the *thread* that started this process ends. Elsewhere a thread polls,
    which ``exec`` ends.

    Args:
        parent_pid: the parent as known from before this process could have lost it; asking for it
            here could come too late.
    """
    if not _kernel_signals_parent_death():
        threading.Thread(target=_poll, args=(parent_pid,), daemon=True, name="lifeline").start()
    if os.getppid() != parent_pid:
        _end()


def _kernel_signals_parent_death() -> bool:
    if sys.platform != "linux":
        return False
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return bool(prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0)


def _poll(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_POLL_S)
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
