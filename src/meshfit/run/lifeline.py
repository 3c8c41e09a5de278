"""What every rank does first, before it imports anything heavy."""

import faulthandler
import os
import signal

from meshfit.lifeline import end_with_parent
from meshfit.record.variables import AGENT_PID_VARIABLE


def hold_lifeline() -> None:
    """Ends this rank when torchrun ends, and lets the launcher ask where it stands.

    SIGUSR1 writes the Python stack of every thread to stderr, also while a collective waits. A
    rank started by hand (no launcher) is tied to whatever started it.
    """
    end_with_parent(int(os.environ.get(AGENT_PID_VARIABLE) or os.getppid()))
    faulthandler.register(signal.SIGUSR1, all_threads=True)
