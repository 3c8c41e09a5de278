"""Sweeps on a real Slurm of two nodes (``make test-slurm``): jobs that are killed, left and resumed."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from meshfit.record.schema import Record
from meshfit.record.store import RecordStore
from tests.processes import marked_processes
from tests.submit.cluster_job import CATALOGUE, CLUSTER, write_cluster_job
from tests.submit.slurm.slurm_here import wait_until

pytestmark = pytest.mark.slurm

CLUSTER_OF_HOSTS = f"{CLUSTER}hosts: [n2, n1]\n"
RUN = "run: {shortlist: 3, repeats: 1, steps: 6, warmup: 1}\ncalibration: none\n"
KILLED = "dp_shard=2"
LAUNCHES_PATIENCE_S = 300.0


class Sweep:
    """``meshfit fit --submit slurm`` of the small job, three layouts on two nodes."""

    def __init__(self, folder: Path, *options: str) -> None:
        job = write_cluster_job(folder, RUN, cluster=CLUSTER_OF_HOSTS)
        self.folder = folder
        self.out = folder / "out"
        self.command = [
            *(sys.executable, "-m", "meshfit.cli.main", "fit", str(job), "--out", str(self.out)),
            *("--submit", "slurm", "--with", "time=20", "--json", *options),
        ]

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self) -> tuple[int, str, str]:
        process = self.start()
        out, err = process.communicate(timeout=LAUNCHES_PATIENCE_S)
        return process.returncode, out, err

    def rows(self) -> list[Record]:
        return RecordStore(self.out).records()

    def outcomes(self) -> dict[str, str]:
        return {row.candidate: row.outcome for row in self.rows() if row.purpose == "measure"}

    def job_of(self, candidate: str) -> tuple[Path, str]:
        """Folder and id of the job that does the launches of a candidate."""
        for folder in (self.out / "jobs").iterdir():
            tasks = json.loads((folder / "part.json").read_text())["tasks"]
            if any(name.startswith(candidate) for _, name, _ in tasks):
                return folder, json.loads((folder / "submitted.json").read_text())["id"]
        raise AssertionError(f"no job of {candidate}")

    def is_at(self, candidate: str) -> Callable[[], bool]:
        """Whether a rank of the candidate has said something."""
        folder = candidate.replace("=", "")  # as a layout is a file name
        return lambda: any(
            (self.out / "candidates").glob(f"{folder}*/repeat-0/heartbeats/rank-*.json")
        )


@pytest.fixture
def in_slurm(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Sweep]]:
    (tmp_path / "catalogue.yaml").write_text(CATALOGUE)
    monkeypatch.setenv("SLURM_CONF", str(slurm))
    monkeypatch.setenv("MESHFIT_CATALOGUE", str(tmp_path / "catalogue.yaml"))
    with marked_processes(monkeypatch, tmp_path):
        yield lambda *options: Sweep(tmp_path, *options)


def test_one_job_each_of_which_one_is_cancelled_shows_it_as_a_row_and_runs_it_again(in_slurm):
    sweep = in_slurm("--one-job-each", "--max-nodes", "2")
    process = sweep.start()
    wait_until(sweep.is_at(KILLED), LAUNCHES_PATIENCE_S)
    _, job_id = sweep.job_of(KILLED)
    subprocess.run(["scancel", job_id], check=True)
    out, err = process.communicate(timeout=LAUNCHES_PATIENCE_S)

    assert process.returncode == 0, err
    document = json.loads(out)
    by_outcome = {c["label"]: c["outcome"] for c in document["candidates"]}
    [killed] = [label for label, outcome in by_outcome.items() if outcome == "interrupted"]
    assert killed.startswith(KILLED)
    assert sorted(by_outcome.values()) == ["interrupted", "ok", "ok"]
    [row] = [row for row in sweep.rows() if row.outcome == "interrupted"]
    assert row.failure is not None
    assert row.failure.message.startswith(f"Slurm job {job_id} ended: CANCELLED, when rank 0 ")
    assert f"Left undone at the end of Slurm job {job_id}: CANCELLED" in " ".join(document["notes"])

    code, out, err = sweep.run()
    assert code == 0, err
    assert [c["outcome"] for c in json.loads(out)["candidates"]] == ["ok"] * 3
    assert "resuming: 1 of 5 launches are left" in err
    hosts = [[rank.host for rank in row.result.ranks] for row in sweep.rows() if row.parity]
    assert hosts == [["n2", "n1"]] * 3
    assert all(row.parity.ok for row in sweep.rows() if row.parity)


def test_one_job_for_all_that_is_left_by_ctrl_c_and_killed_from_outside(in_slurm):
    sweep = in_slurm()
    process = sweep.start()
    wait_until((sweep.out / "jobs" / "1" / "submitted.json").exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "goes on without this command" in err

    process = sweep.start()
    wait_until(sweep.is_at(KILLED), LAUNCHES_PATIENCE_S)
    folder, job_id = sweep.job_of(KILLED)
    for job in psutil.process_iter(["cmdline"]):
        if job.info["cmdline"][-2:] == ["meshfit.funnel.submit.part", str(folder)]:
            os.kill(job.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=LAUNCHES_PATIENCE_S)

    assert process.returncode == 0, err
    assert len(list((sweep.out / "jobs").iterdir())) == 1
    [crash] = [row for row in sweep.rows() if row.outcome != "ok"]
    assert (crash.candidate.startswith(KILLED), crash.outcome) == (True, "crash")
    assert crash.failure is not None
    assert crash.failure.message.startswith(f"Slurm job {job_id} ended: FAILED (signal 9), when ")

    code, out, err = sweep.run()
    assert code == 0, err
    outcomes = [c["outcome"] for c in json.loads(out)["candidates"]]
    assert sorted(outcomes) == ["crash", "ok", "ok"]


def test_an_exported_script_runs_with_ranks_in_the_order_of_the_clusters_hosts(
    in_slurm: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = in_slurm()
    export = sweep.folder / "export"
    meshfit = [sys.executable, "-m", "meshfit.cli.main", "export", str(sweep.folder / "job.yaml")]
    subprocess.run(
        [*meshfit, "--layout", "dp_shard=2", "--out", str(export)], check=True, capture_output=True
    )
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")  # no name server knows the nodes
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    sbatch = ["sbatch", "--wait", "--output=log.txt", "launch.sbatch"]
    done = subprocess.run(sbatch, cwd=export, capture_output=True, text=True, check=False)
    log = (export / "log.txt").read_text()
    assert done.returncode == 0, log
    assert len(re.findall(r"^step +\d+.*loss", log, re.MULTILINE)) >= 6


def test_a_layout_runs_on_the_nodes_of_an_allocation(in_slurm: Callable[..., Sweep]) -> None:
    sweep = in_slurm()
    out = sweep.folder / "allocated"
    meshfit = [sys.executable, "-m", "meshfit.cli.main", "run", str(sweep.folder / "job.yaml")]
    meshfit += ["--layout", "dp_shard=2", "--out", str(out), "--submit", "allocation"]
    salloc = ["salloc", "--nodes=2", "--exclusive", "--time=10"]
    done = subprocess.run(
        [*salloc, *meshfit], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    row = RecordStore(out).records()[-1]
    assert row.result is not None
    assert [rank.host for rank in row.result.ranks] == ["n2", "n1"]
    [timeline] = out.glob("candidates/*/repeat-0/**/timeline.json")
    said = timeline.read_text()
    assert ("rank 0 on n2" in said, "rank 1 on n1" in said) == (True, True)
