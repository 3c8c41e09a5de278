"""Processes that a test starts, at whatever remove, told apart by a mark in their environment."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

MARK = "MESHFIT_TEST_MARK"


@contextmanager
def marked_processes(monkeypatch: pytest.MonkeyPatch, workers: Path) -> Iterator[str]:
    """The mark of a test's processes; ends them, and fails, if any is left when the test ends.

    ``workers`` is the folder whose modules they can run.
    """
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("PYTHONPATH", str(workers))
    yield mark
    left = living(mark)
    for process in left:
        process.kill()
    assert left == [], "processes are left"


def living(mark: str) -> list[psutil.Process]:
    """Every living process with this mark but this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]
