"""``meshfit dryrun`` from a job file to its document."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.cli.main import app
from meshfit.errors import InputError
from meshfit.funnel.check import dry_run
from meshfit.funnel.check.dry_run import dry_run_document
from meshfit.job.read import read_job
from meshfit.report.predicted.dry_run import dry_run_view
from tests.run.layouts import CONFIGS

JOB = """
schema_version: 1
model: model
workload: {kind: training, sequence_length: 64, global_batch: 16 sequences, precision: bf16_mixed}
cluster: 2x8 H100-SXM
layout: {pp: 2, dp_shard: 4, tp: 2, micro_batch_size: 1}
"""


@pytest.fixture(scope="module")
def job_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dryrun")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    (folder / "job.yaml").write_text(JOB)
    return folder / "job.yaml"


@pytest.fixture(scope="module")
def last_rank(job_path: Path) -> dict[str, Any]:
    """What the command says of the last rank."""
    done = subprocess.run(
        [sys.executable, "-m", "meshfit.cli.main", "dryrun", str(job_path), "--json", "--rank=15"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_rank_outside_of_the_world_is_refused(job_path: Path) -> None:
    job = read_job(job_path)
    with pytest.raises(InputError, match=r"rank 16 is none of the 16 ranks .* use 0 to 15"):
        dry_run_document(job, job.layout, rank=16)


def test_an_illegal_layout_is_refused_before_anything_is_run(job_path: Path) -> None:
    job = read_job(job_path, layout="tp=3")
    with pytest.raises(InputError, match="is not legal"):
        dry_run_document(job, job.layout)


@pytest.mark.dist
def test_what_the_runner_refuses_is_refused_in_its_words(job_path: Path) -> None:
    job = read_job(job_path, layout="recompute=full,recompute_layers=2")
    with pytest.raises(InputError, match="full checkpoints layers one by one"):
        dry_run_document(job, job.layout)


@pytest.mark.dist
def test_the_command_prints_memory_collectives_flops_and_operators(
    last_rank: dict[str, Any],
) -> None:
    document = last_rank
    memory = document["memory"]
    assert memory["allocated"] == sum(memory[name] for name in MEMORY_CATEGORIES) > 0
    assert memory["reserved"] == memory["allocators"]["default"]["reserved"]
    assert memory["out_of_memory"] is False
    for use in memory["allocators"].values():
        assert use["reserved"] >= use["allocated"] >= memory["allocated"]
    assert document["coordinates"] == {"pp": 1, "dp_replicate": 0, "dp_shard": 3, "cp": 0, "tp": 1}
    assert {one["axis"] for one in document["collectives"]} == {"pp", "dp_shard", "tp", "world"}
    assert sum(row["count"] for row in document["collectives_summed"]) == len(
        document["collectives"]
    )
    assert document["flops"]["total"] == document["flops"]["model"] > 0
    assert document["operators"] and document["left_out"]
    assert dry_run_view(document) is not None


@pytest.mark.parametrize(("out_of_memory", "exit_code"), [(True, 1), (False, 0), (None, 0)])
def test_the_command_ends_as_a_layout_that_does_not_fit_where_memory_runs_out(
    job_path: Path, monkeypatch: pytest.MonkeyPatch, out_of_memory: bool | None, exit_code: int
) -> None:
    memory = {} if out_of_memory is None else {"out_of_memory": out_of_memory}
    monkeypatch.setattr(dry_run, "dry_run_document", lambda *_, **__: {"memory": memory})
    done = CliRunner().invoke(app, ["dryrun", str(job_path), "--json"])
    assert done.exit_code == exit_code


@pytest.mark.dist
@pytest.mark.heavy
def test_a_step_that_half_of_its_memory_cannot_hold_runs_out(
    job_path: Path, last_rank: dict[str, Any]
) -> None:
    job = read_job(job_path)
    needed = last_rank["memory"]["allocated"]
    small = replace(job.topology.accelerator, memory_bytes=needed // 2)
    halved = replace(job, topology=replace(job.topology, accelerator=small))
    memory = dry_run_document(halved, job.layout, rank=15)["memory"]
    assert memory["out_of_memory"]
    assert memory["reserved"] <= needed // 2
