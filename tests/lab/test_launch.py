"""Real launches over the hosts of a lab: a torchrun on each, Gloo between them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from meshfit.cluster.lab import PAYLOAD_FRACTION, lab_topology
from meshfit.cluster.topology import LabSpec
from meshfit.lab.hosts import launch_hosts
from meshfit.lab.machine import lab_for
from meshfit.launch.supervise import LaunchOutcome, launch
from meshfit.mesh.spec import LayoutSpec
from tests.funnel.small_job import write_job
from tests.lab.conftest import traces
from tests.lab.lab_worker import TRANSFERRED_BYTES
from tests.launch.test_supervise import make_request
from tests.processes import living

pytestmark = [pytest.mark.dist, pytest.mark.usefixtures("no_lab_yet", "marked")]

RATE = 25e6
LAB_LINE = "cluster: {lab: {hosts: 2, ranks_per_host: 1, between: 200Mbit}}"


def lab_of(*hosts: str, ranks_per_host: int = 1) -> LabSpec:
    return LabSpec(hosts=hosts, ranks_per_host=ranks_per_host, between_bytes_per_s=RATE)


def run_in(lab: LabSpec, folder: Path, *, candidate: str = "plain") -> LaunchOutcome:
    """A launch of the worker beside this file, on all ranks of ``lab``."""
    hosts = tuple(host for host in lab.hosts for _ in range(lab.ranks_per_host))
    request = make_request(candidate, layout=LayoutSpec(dp_replicate=len(hosts)), hosts=hosts)
    with lab_for(lab):
        return launch(
            request,
            folder,
            deadline_s=120,
            hang_s=60,
            module="lab_worker",
            hosts=launch_hosts(lab_topology(lab)),
        )


def test_ranks_fill_hosts_in_order_and_the_link_between_them_is_slow(tmp_path: Path) -> None:
    ended = run_in(lab_of("node1", "node2", ranks_per_host=2), tmp_path / "run")

    assert (ended.outcome, ended.failure) == ("ok", None)
    assert ended.result is not None
    assert [rank.host for rank in ended.result.ranks] == ["node1", "node1", "node2", "node2"]
    least_s = TRANSFERRED_BYTES / (RATE * PAYLOAD_FRACTION)
    transfer_s = ended.result.environment["transfer_s"]
    assert 0.95 * least_s < transfer_s < 2 * least_s


def test_hosts_that_torchrun_orders_as_text_are_a_launch_error(tmp_path: Path) -> None:
    ended = run_in(lab_of("node2", "node10"), tmp_path / "run")

    assert ended.outcome == "launch_error"
    assert ended.failure is not None
    assert "ranks are on node10 (1), node2 (1), but were planned on node2 (1), node10 (1)" in (
        ended.failure.message
    )
    assert "orders hosts by name as text" in ended.failure.message


def test_a_rank_that_fails_on_the_second_host_is_named(tmp_path: Path) -> None:
    ended = run_in(lab_of("node1", "node2"), tmp_path / "run", candidate="fails")

    assert ended.outcome == "crash"
    assert ended.failure is not None
    assert ended.failure.rank == 1
    assert ended.failure.message == "ValueError: broken on the last host"


def start_lab_run(folder: Path) -> "subprocess.Popen[bytes]":
    """``meshfit lab run`` of a small job, once its first rank has started."""
    job = write_job(folder, "run: {repeats: 1, steps: 6, warmup: 1}\ncalibration: none\n")
    text = job.read_text()
    cluster = next(line for line in text.splitlines() if line.startswith("cluster:"))
    job.write_text(text.replace(cluster, LAB_LINE))
    command = [sys.executable, "-m", "meshfit.cli.main", "lab", "run", str(job)]
    process = subprocess.Popen([*command, "--layout", "dp_shard=2", "--out", str(folder / "out")])
    heartbeats = folder / "out" / "weights" / "full" / "heartbeats"
    _wait_until(lambda: heartbeats.is_dir() or process.poll() is not None)
    return process


def _wait_until(condition: Callable[[], bool], *, patience_s: float = 60.0) -> None:
    until_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


@pytest.mark.heavy
def test_lab_run_makes_the_lab_runs_the_job_and_leaves_no_trace(tmp_path: Path) -> None:
    process = start_lab_run(tmp_path)
    assert process.wait(timeout=180) == 0
    document = json.loads((tmp_path / "out" / "fit.json").read_text())
    assert document["winner"]["layout"]["dp_shard"] == 2
    rows = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    measured = json.loads(rows[-1])
    assert [rank["host"] for rank in measured["result"]["ranks"]] == ["host0", "host1"]
    assert measured["parity"]["ok"]
    assert traces() == []


def test_lab_run_that_is_interrupted_leaves_no_trace(tmp_path: Path, marked: str) -> None:
    process = start_lab_run(tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert living(marked) == []
    assert traces() == []


def test_lab_run_that_is_killed_takes_its_ranks_along_and_the_next_command_cleans_up(
    tmp_path: Path, marked: str
) -> None:
    process = start_lab_run(tmp_path)
    process.kill()
    process.wait()
    _wait_until(lambda: living(marked) == [], patience_s=30)
    assert traces() != []
    command = [sys.executable, "-m", "meshfit.cli.main", "lab", "down"]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
    assert "removed" in done.stdout
    assert traces() == []
