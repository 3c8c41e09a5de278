"""What the kernel counts of a thread."""

import threading
import time

import pytest

from meshfit.measure.timeline import threads
from meshfit.measure.timeline.threads import ThreadCounts

SLEPT_S = 0.02


def test_a_thread_that_computes_runs_and_one_that_sleeps_does_not() -> None:
    counts = ThreadCounts()
    start, begun_s = counts.now(), time.thread_time()
    while time.thread_time() < begun_s + SLEPT_S:
        pass
    worked = counts.now()
    time.sleep(SLEPT_S)
    slept = counts.now()
    counts.close()
    assert worked.running_s - start.running_s >= SLEPT_S
    assert slept.running_s - worked.running_s < SLEPT_S / 2


def test_each_thread_has_counts_of_its_own() -> None:
    counts, seen = ThreadCounts(), []
    other = threading.Thread(target=lambda: seen.append(counts.now()))
    other.start()
    other.join()
    assert seen[0].thread != counts.now().thread
    counts.close()


def test_where_the_kernel_has_no_such_file_waiting_for_a_core_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "SCHEDSTAT", "/proc/no/such/{thread}")
    counts = ThreadCounts()
    assert counts.now().core_wait_s is None
    counts.close()
