"""Finding and ending the processes of a launch, with sleeping processes in place of torchrun."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from meshfit.launch.orphans import end_orphans
from meshfit.launch.processes import (
    LaunchProcesses,
    end,
    read_processes,
    running,
    write_processes,
)
from meshfit.record.variables import LAUNCH_VARIABLE

SLEEP = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
LEADER = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""
READY = "print('ready', flush=True)\n"


@contextmanager
def started(code: str, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that leads a session, marked as one of the launch ``name``."""
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(
        command,
        env=os.environ | {LAUNCH_VARIABLE: name},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def test_a_recorded_launch_is_read_back(tmp_path: Path, name: str) -> None:
    launch = LaunchProcesses.of_leader(os.getpid(), name)
    write_processes(tmp_path / "processes.json", launch)
    assert read_processes(tmp_path / "processes.json") == launch


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_broken_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "processes.json").write_text(text)
    assert read_processes(tmp_path / "processes.json") is None


def test_children_in_sessions_of_their_own_are_ended_with_the_leader(name: str) -> None:
    with started(LEADER, name) as leader:
        child = int(first_line(leader))
        launch = LaunchProcesses.of_leader(leader.pid, name)
        assert end(launch, grace_s=5.0) == sorted([leader.pid, child])
        assert running(launch) == []


def test_children_are_found_after_their_leader_is_gone(name: str) -> None:
    with started(LEADER, name) as leader:
        child = int(first_line(leader))
        launch = LaunchProcesses.of_leader(leader.pid, name)
        leader.kill()
        leader.wait()
        assert end(launch, grace_s=5.0) == [child]
        assert running(launch) == []


def test_a_process_deaf_to_sigterm_is_killed_after_the_grace(name: str) -> None:
    with started(DEAF + READY + SLEEP, name) as deaf:
        first_line(deaf)
        launch = LaunchProcesses.of_leader(deaf.pid, name)
        before = time.monotonic()
        assert end(launch, grace_s=0.3) == [deaf.pid]
        assert 0.3 <= time.monotonic() - before < 5.0
        assert running(launch) == []


def test_ending_what_has_ended_does_nothing(name: str) -> None:
    with started("pass", name) as gone:
        launch = LaunchProcesses.of_leader(gone.pid, name)
        gone.wait()
        assert end(launch, grace_s=5.0) == []


def test_orphans_of_every_launch_below_a_run_folder_are_ended(tmp_path: Path, name: str) -> None:
    record = tmp_path / "candidates" / "tp=2" / "repeat-0" / "processes.json"
    with started(LEADER, name) as leader:
        child = int(first_line(leader))
        write_processes(record, LaunchProcesses.of_leader(leader.pid, name))
        (ended,) = end_orphans(tmp_path)
        assert ended.folder == record.parent
        assert set(ended.pids) == {leader.pid, child}
        assert not record.exists()
        assert end_orphans(tmp_path) == []


def test_a_process_that_merely_has_a_recorded_pid_is_left_alone(tmp_path: Path, name: str) -> None:
    with started(SLEEP, "of somebody else") as stranger:
        was_here = replace(
            LaunchProcesses.of_leader(stranger.pid, name),
            created_at=psutil.Process(stranger.pid).create_time() - 3600,
        )
        write_processes(tmp_path / "processes.json", was_here)
        assert end_orphans(tmp_path) == []
        assert stranger.poll() is None


def test_a_process_of_another_launch_is_left_alone(tmp_path: Path, name: str) -> None:
    with started(SLEEP, name) as mine, started(SLEEP, name + "-other") as other:
        write_processes(tmp_path / "processes.json", LaunchProcesses.of_leader(mine.pid, name))
        (ended,) = end_orphans(tmp_path)
        assert ended.pids == (mine.pid,)
        assert other.poll() is None
