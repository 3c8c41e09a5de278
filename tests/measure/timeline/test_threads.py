"""What the kernel counts of a thread."""

import threading
import time

import pytest

from meshfit.measure.timeline import threads
from meshfit.measure.timeline.gaps import HostGaps
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


def test_of_a_thread_that_never_sleeps_every_gap_is_accounted_for() -> None:
    gaps, begun_s = HostGaps(), time.thread_time()
    while time.thread_time() < begun_s + SLEPT_S:
        gaps.begin(time.perf_counter())
        sum(range(2000))
        gaps.end(time.perf_counter())
        sum(range(2000))
    found = gaps.close()
    wall_s = sum(gap.end_s - gap.begin_s for gap in found)
    known_s = sum(gap.running_s + (gap.core_wait_s or 0.0) for gap in found)
    assert known_s < 1.3 * wall_s
    assert known_s > 0.7 * wall_s or found[0].core_wait_s is None


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
