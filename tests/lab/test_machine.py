"""Labs on this machine: real namespaces where there is root, no ranks."""

import os
import subprocess
import sys

import psutil
import pytest
from hypothesis import given

from meshfit.cluster.lab import lab_that_is_up, read_lab_block
from meshfit.cluster.topology import LabSpec
from meshfit.errors import InputError, RunError
from meshfit.lab import machine
from meshfit.lab.commands import start_prefix, up_commands
from meshfit.lab.machine import (
    lab_document,
    lab_down,
    lab_for,
    lab_in_use,
    lab_up,
    require_means,
    up_line,
)
from tests.lab.conftest import namespaces_of_labs, traces
from tests.lab.test_commands import labs

LAB = LabSpec(hosts=("node1", "node2"), ranks_per_host=1, between_bytes_per_s=25e6)
OTHER = LabSpec(hosts=("a", "b", "c"), ranks_per_host=2, between_bytes_per_s=1e6)

needs_lab = pytest.mark.usefixtures("no_lab_yet")


def test_without_root_one_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for attempt in (require_means, lab_down, lambda: lab_up(LAB)):
        with pytest.raises(InputError, match=r"^a lab needs root: .* sudo$"):
            attempt()


def test_a_missing_program_is_named_with_the_package_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="a lab needs ip, tc, unshare: apt install iproute2 util-"):
        require_means()


@given(lab=labs)
def test_what_is_written_of_a_lab_reads_back_as_the_same_lab(lab: LabSpec) -> None:
    assert read_lab_block({"lab": lab_document(lab)}, "lab") == lab


@needs_lab
def test_a_lab_goes_up_and_comes_down_without_a_trace() -> None:
    lab_up(LAB)
    assert lab_that_is_up() == LAB
    on_node2 = subprocess.run(
        [*start_prefix("node2"), "sh", "-c", "hostname; getent hosts node1"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert on_node2.stdout.split() == ["node2", "10.77.0.1", "node1"]
    assert lab_down() == [
        "meshfit-lab-host-node1",
        "meshfit-lab-host-node2",
        "meshfit-lab-switch",
    ]
    assert traces() == []
    assert lab_down() == []


@needs_lab
@pytest.mark.parametrize("done", [1, 3, 7, 15])
def test_what_a_killed_command_left_goes_with_the_next_one(done: int) -> None:
    commands = up_commands(OTHER)
    for command in commands[:done]:
        subprocess.run(command, check=True)
    assert lab_that_is_up() is None
    lab_up(LAB)
    assert namespaces_of_labs() == [
        "meshfit-lab-host-node1",
        "meshfit-lab-host-node2",
        "meshfit-lab-switch",
    ]


@needs_lab
@pytest.mark.parametrize("error", [KeyboardInterrupt, RunError])
def test_what_is_interrupted_or_fails_halfway_leaves_nothing(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = machine._run

    def run_until_node2(command):
        if "port1" in command:
            raise error
        return run(command)

    monkeypatch.setattr(machine, "_run", run_until_node2)
    with pytest.raises(error):
        lab_up(LAB)
    assert traces() == []


@needs_lab
def test_a_refusal_of_the_system_quotes_the_command_and_what_it_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "up_commands", lambda lab: [("ip", "netns", "del", "no-such")])
    with pytest.raises(RunError, match=r"`ip netns del no-such` failed: .*No such file"):
        lab_up(LAB)


@needs_lab
def test_up_leaves_a_lab_alone_in_which_something_runs_and_down_ends_it() -> None:
    lab_up(LAB)
    sleeper = subprocess.Popen([*start_prefix("node1"), "sleep", "300"])
    try:
        while psutil.Process(sleeper.pid).name() != "sleep":
            pass
        with pytest.raises(InputError, match=rf"processes \[{sleeper.pid}\] run in the lab"):
            lab_up(OTHER)
        assert lab_that_is_up() == LAB
        lab_down()
        assert not psutil.pid_exists(sleeper.pid)
    finally:
        sleeper.kill()


@needs_lab
def test_a_lab_for_one_job_is_there_while_it_runs_unless_it_was_up_before() -> None:
    with lab_for(LAB):
        assert lab_that_is_up() == LAB
        with lab_for(LAB):
            pass
        assert lab_that_is_up() == LAB
        with pytest.raises(InputError, match="another lab is up: `meshfit lab up --hosts node1"):
            lab_for(OTHER).__enter__()
    assert traces() == []


HOLDS_A_LAB = """
import time
from meshfit.lab.machine import lab_for
from tests.lab.test_machine import LAB
with lab_for(LAB):
    print("up", flush=True)
    time.sleep(60)
"""


@needs_lab
def test_a_lab_for_one_job_is_removed_when_its_process_is_terminated() -> None:
    command = [sys.executable, "-c", HOLDS_A_LAB]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        assert traces()
        holder.terminate()
        holder.wait(timeout=30)
    assert traces() == []


@needs_lab
def test_a_job_holds_its_lab_against_whoever_would_take_it_down() -> None:
    with pytest.raises(InputError, match="the job's lab is not up: `meshfit lab run JOB`"):
        lab_in_use(LAB).__enter__()
    with lab_for(LAB), lab_in_use(LAB), pytest.raises(InputError, match="in use"):
        lab_down()


def test_without_a_lab_there_is_nothing_to_hold() -> None:
    with lab_in_use(None):
        pass


def test_the_line_that_makes_a_lab_names_all_of_it() -> None:
    slow = LabSpec(hosts=("a", "b"), ranks_per_host=2, between_bytes_per_s=25e6, latency_s=1e-3)
    assert up_line(slow) == (
        "meshfit lab up --hosts a,b --ranks-per-host 2 --between 200Mbit --latency 1ms"
    )
