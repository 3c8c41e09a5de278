"""Commands run by another process that shares a folder with this one."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshfit.submit import errands
from meshfit.submit.errands import HostFiles, attend, dismiss, errand_prefix

PATIENCE_S = 20.0


class Host:
    """Another host: a thread that attends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.thread = threading.Thread(target=attend, args=(folder,), daemon=True)

    def start(self) -> None:
        self.thread.start()

    def go(self) -> None:
        dismiss(self.folder)
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(errands, "_POLL_S", 0.02)
    made = Host(tmp_path / "host")
    yield made
    if made.thread.is_alive():
        made.go()


def start(host: Host, out: Path, *command: str, variables: tuple[str, ...] = ()):
    with out.open("wb") as file:
        return subprocess.Popen(
            [*errand_prefix(host.folder, variables), *command], stdout=file, stderr=file
        )


def test_a_command_runs_there_and_ends_here_with_its_exit_code_and_words(host, tmp_path):
    host.start()
    process = start(host, tmp_path / "out", "sh", "-c", "echo there; exit 7")
    assert process.wait(PATIENCE_S) == 7
    assert (tmp_path / "out").read_text() == "there\n"


def test_a_host_that_comes_later_finds_what_was_asked_before(host, tmp_path):
    process = start(host, tmp_path / "out", "true")
    while not HostFiles(host.folder).errands(0):
        time.sleep(0.02)
    host.start()
    assert process.wait(PATIENCE_S) == 0


def test_errands_that_were_answered_are_not_run_again(host, tmp_path):
    host.start()
    assert start(host, tmp_path / "out", "touch", str(tmp_path / "made")).wait(PATIENCE_S) == 0
    (tmp_path / "made").unlink()
    host.go()
    again = Host(host.folder)
    again.start()
    again.go()
    assert not (tmp_path / "made").exists()


def test_variables_of_a_launch_and_those_that_are_named_go_along(host, tmp_path, monkeypatch):
    monkeypatch.setenv("MESHFIT_LAUNCH", "name")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("DEVICES", "1,0")
    monkeypatch.setenv("SECRET", "left behind")
    shown = ("sh", "-c", "echo $MESHFIT_LAUNCH $OMP_NUM_THREADS $DEVICES $SECRET")
    process = start(host, tmp_path / "out", *shown, variables=("DEVICES",))
    while not HostFiles(host.folder).errands(0):
        time.sleep(0.02)
    for name in ("MESHFIT_LAUNCH", "OMP_NUM_THREADS", "DEVICES", "SECRET"):
        monkeypatch.delenv(name)
    host.start()
    assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "out").read_text() == "name 3 1,0\n"


def test_sigterm_ends_what_it_stands_for(host, tmp_path):
    host.start()
    pid_file = tmp_path / "pid"
    process = start(host, tmp_path / "out", "sh", "-c", f"echo $$ > {pid_file}; exec sleep 60")
    while not pid_file.exists() or not pid_file.read_text():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{int(pid_file.read_text())}").exists()


def test_one_command_follows_another_that_was_ended(host, tmp_path):
    host.start()
    first = start(host, tmp_path / "out", "sleep", "60")
    while not HostFiles(host.folder).errands(0):
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    first.wait(PATIENCE_S)
    assert start(host, tmp_path / "out", "true").wait(PATIENCE_S) == 0


def test_what_stands_for_a_command_ends_with_who_started_it(host, tmp_path):
    parent = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True)"
    parent += "; time.sleep(60)"
    command = [sys.executable, "-c", parent, *errand_prefix(host.folder), "true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        while not HostFiles(host.folder).errands(0):  # the lifeline is tied by then
            time.sleep(0.02)
        process.kill()
    until_s = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until_s
        time.sleep(0.02)
