import os
import signal

import pytest

from meshfit.interrupt import terminated_as_interrupted


def test_sigterm_interrupts_the_block_and_means_afterwards_what_it_did_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
