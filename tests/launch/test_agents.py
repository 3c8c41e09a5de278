"""Processes of several hosts that end, or fail, together; stand-ins for torchrun."""

import subprocess
import time
from collections.abc import Iterator

import pytest

from meshfit.launch import agents
from meshfit.launch.agents import Agents

Started = list["subprocess.Popen[bytes]"]


@pytest.fixture
def started() -> Iterator[Started]:
    processes: Started = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def start(started: Started, *commands: str) -> Agents:
    started += [subprocess.Popen(["sh", "-c", command]) for command in commands]
    return Agents(started)


def test_all_have_ended_well_when_the_last_one_has(started: Started) -> None:
    both = start(started, "exit 0", "sleep 0.3")
    assert not both.have_ended(0.05)
    assert both.exit_code is None
    assert both.have_ended(30)
    assert both.exit_code == 0


def test_one_that_fails_ends_the_others_when_they_do_not_notice(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_OTHERS_PATIENCE_S", 0.2)
    both = start(started, "exit 3", "sleep 60")
    began_s = time.monotonic()
    assert both.have_ended(30)
    assert time.monotonic() - began_s < 10
    assert both.exit_code == 3


def test_others_that_notice_a_failure_are_waited_for(started: Started) -> None:
    both = start(started, "sleep 0.2; exit 4", "exit 3")
    assert both.have_ended(30)
    assert both.exit_code == 4
