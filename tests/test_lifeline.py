import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

CHILD = """
import os, sys, time
from meshfit import lifeline
if "--poll" in sys.argv:
    lifeline._kernel_signals_parent_death = lambda: False
    lifeline._POLL_S = 0.05
lifeline.end_with_parent(int(sys.argv[1]))
if "--exec" in sys.argv:
    os.execv(sys.executable, [sys.executable, "-c", "print('tied', flush=True); import time; time.sleep(60)"])
print("tied", flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid()), *sys.argv[1:]])
print(child.pid, flush=True)
time.sleep(60)
"""


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)


@pytest.mark.parametrize("options", [[], ["--exec"], ["--poll"]], ids=["kernel", "exec", "polling"])
def test_a_child_ends_when_its_parent_is_killed(options: list[str]) -> None:
    command = [sys.executable, "-c", PARENT, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "tied\n"
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until_gone(child)


def test_a_child_whose_parent_ended_before_it_looked_ends_at_once() -> None:
    gone = os.getpid() + 1
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(gone)], timeout=30, check=False, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has prctl")
def test_linux_offers_the_kernels_own_lifeline() -> None:
    code = "from meshfit import lifeline; print(lifeline._kernel_signals_parent_death())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
