"""The funnel for real: a small Llama on two CPU ranks, from the job file to the winner."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from meshfit.record.residuals import default_calibration_path, read_residuals
from meshfit.record.store import RecordStore
from tests.funnel.small_job import write_job

SWEEP = """
baseline: {dp_replicate: 2, micro_batch_size: 2}
search: {micro_batch_size: 2, tp: 1, recompute: none, schedule: gpipe, zero_stage: 3, vpp: 1}
run: {shortlist: 2, repeats: 2, steps: 6, warmup: 1}
"""
LAUNCHES = 2 + 3 * 2
"""Weights and reference, then DDP, FSDP2 and PP twice each."""


def meshfit(*arguments: str, **options) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "meshfit.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def rows(folder: Path):
    return RecordStore(folder).records()


def wait_for(condition, patience_s: float = 120):
    """The first true value of ``condition``, asked a few times a second."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"did not happen within {patience_s:.0f} s")


def worker_pids(folder: Path) -> list[int]:
    """Ranks of the launch in progress in a run folder."""
    starters = {"torch.distributed.run", "meshfit.launch.agent"}
    return [
        process.pid
        for process in processes_of(folder)
        if "meshfit.run.worker" in (line := process.info["cmdline"])
        and not starters.intersection(line)
    ]


def processes_of(folder: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in argument for argument in process.info["cmdline"] or [])
    ]


@pytest.fixture(scope="module")
def killed_twice(tmp_path_factory):
    """A sweep in which a rank is killed, then the parent, then it is run to its end."""
    root = tmp_path_factory.mktemp("killed")
    job, out = write_job(root, SWEEP), root / "out"
    arguments = ("fit", str(job), "--out", str(out), "--json")

    first = meshfit(*arguments)
    try:
        candidate = wait_for(
            lambda: [r for r in rows(out) if r.purpose == "measure"] and worker_pids(out)
        )
        killed = rows(out)
        os.kill(candidate[-1], signal.SIGKILL)
        wait_for(lambda: len(rows(out)) > len(killed))
        wait_for(lambda: worker_pids(out))
        first.kill()
    finally:
        first.kill()
        first.communicate()
    left = wait_for(lambda: [] if processes_of(out) else ["none"], patience_s=15)
    before = rows(out)

    second = meshfit(*arguments)
    stdout, stderr = second.communicate(timeout=300)
    return {
        "before": before,
        "left": left,
        "after": rows(out),
        "document": json.loads(stdout) if second.returncode == 0 else stderr,
        "stderr": stderr,
        "code": second.returncode,
        "out": out,
        "arguments": arguments,
    }


@pytest.mark.dist
def test_a_killed_rank_is_a_row_and_the_sweep_goes_on(killed_twice):
    outcomes = [row.outcome for row in killed_twice["before"]]
    assert outcomes[:3] == ["ok", "ok", "ok"]
    assert outcomes[3] == "crash"
    assert "signal 9" in killed_twice["before"][3].failure.message


@pytest.mark.dist
def test_a_killed_parent_leaves_no_process_and_what_had_finished(killed_twice):
    assert killed_twice["left"] == ["none"]
    assert len(killed_twice["before"]) >= 4


@pytest.mark.dist
def test_resuming_runs_only_the_rest_and_repeats_nothing(killed_twice):
    before, after = killed_twice["before"], killed_twice["after"]
    assert after[: len(before)] == before
    keys = [(row.purpose, row.candidate, row.repeat) for row in after]
    assert len(keys) == len(set(keys)) == LAUNCHES - 1  # the killed layout is not run again
    left = len(after) - len(before)
    assert f"resuming: {left} of {LAUNCHES} launches are left" in killed_twice["stderr"]


@pytest.mark.dist
def test_the_end_names_a_winner_with_parity_and_writes_page_and_launch_files(killed_twice):
    document, out = killed_twice["document"], killed_twice["out"]
    assert killed_twice["code"] == 0
    assert document["outcome"] == "ok"
    won = next(c for c in document["candidates"] if c["label"] == document["winner"]["label"])
    assert won["outcome"] == "ok"
    assert won["parity"]["ok"]
    assert won["parity"]["kind"] == "single_process"
    assert won["parity"]["gradient_error"] < 5e-6
    assert won["predicted"]["time"]["step"] > 0
    assert document["winner"]["label"] in (out / "report.html").read_text()
    assert (out / "export" / "train.py").is_file()
    failed = [c for c in document["candidates"] if c["outcome"] == "crash"]
    assert len(failed) == 1
    assert failed[0]["failure"]["message"] in failed[0]["reason"]


@pytest.mark.dist
def test_what_was_measured_is_remembered_once_for_later_plans(killed_twice):
    remembered = killed_twice["document"]["remembered"]
    assert Path(remembered["file"]) == default_calibration_path()
    key = killed_twice["after"][0].plan_hash
    held = [row for row in read_residuals(default_calibration_path()).rows if row.plan_hash == key]
    ended_well = {
        candidate["label"]
        for candidate in killed_twice["document"]["candidates"]
        if candidate["outcome"] == "ok"
    }
    assert sorted(row.layout.label for row in held) == sorted(ended_well)
    assert all(row.measured_step_s > 0 and row.measured_memory_bytes > 0 for row in held)


@pytest.mark.dist
def test_a_finished_sweep_answers_again_without_running_anything(killed_twice):
    started = time.monotonic()
    again = meshfit(*killed_twice["arguments"])
    stdout, _ = again.communicate(timeout=60)
    assert time.monotonic() - started < 15
    assert json.loads(stdout)["winner"] == killed_twice["document"]["winner"]
    assert rows(killed_twice["out"]) == killed_twice["after"]


@pytest.mark.dist
def test_another_job_is_refused_in_the_same_folder(killed_twice, tmp_path):
    other = write_job(tmp_path, SWEEP.replace("steps: 6", "steps: 7"))
    refused = meshfit("fit", str(other), "--out", str(killed_twice["out"]))
    _, stderr = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert "another job" in stderr


@pytest.mark.dist
@pytest.mark.heavy
def test_parity_on_a_cut_model_and_against_a_plain_layout(tmp_path):
    job = write_job(tmp_path, "run: {parity: reduced, repeats: 1, steps: 5, warmup: 1}\n")
    out = tmp_path / "out"
    run = meshfit("run", str(job), "--layout", "pp=2,schedule=GPipe", "--out", str(out), "--json")
    stdout, stderr = run.communicate(timeout=300)
    assert run.returncode == 0, stderr
    (candidate,) = json.loads(stdout)["candidates"]
    assert candidate["parity"]["kind"] == "reduced"
    assert candidate["parity"]["ok"]
    by_purpose = {row.purpose: row for row in rows(out)}
    plan = json.loads((out / "plan.json").read_text())
    assert plan["parity_steps"] == ["num_hidden_layers 4 -> 2"]
    layers = {
        gradient.name.split(".")[2]
        for gradient in by_purpose["parity"].result.gradients
        if ".layers." in gradient.name
    }
    assert layers == {"0", "1"}
    assert by_purpose["measure"].parity is None  # it is the plain layout itself
