import json

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app

JOB = """\
schema_version: 1
model: llama-3.1-8b
workload: {kind: training, sequence_length: 4096, global_batch: 64 sequences, precision: bf16_mixed}
cluster: 8x8 H100-SXM
layout: {tp: 8, dp_shard: 8, micro_batch_size: 1}
search: {micro_batch_size: 1, recompute: none, pp: 1, cp: 1}
calibration: none
curves: none
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


def placements(*arguments):
    done = CliRunner().invoke(app, ["plan", *arguments, "--placements", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["placements"]


def test_tensor_parallel_across_hosts_loses_to_tensor_parallel_inside(job):
    (found,) = placements(job, "--layout", "tp=8,dp_shard=8")
    best, worst = found["placements"]
    assert best["levels"] == {"tp": "link", "dp_shard": "network"}
    assert best["engine_order"]
    assert worst["levels"] == {"tp": "network", "dp_shard": "link"}
    assert worst["slower"] > 0.3
    assert worst["exposed"] > best["exposed"]


def test_hosts_say_which_ranks_each_takes(job):
    (found,) = placements(job, "--layout", "tp=8,dp_shard=8")
    assert found["hosts"] == [
        {"name": f"host{host}", "ranks": list(range(8 * host, 8 * host + 8))} for host in range(8)
    ]
    assert found["placements"][1]["by_rank_order"][:3] == [0, 8, 16]


def test_the_best_three_are_looked_at_without_a_layout(job):
    assert len(placements(job)) == 3


def test_the_table_names_the_engines_order(job):
    done = CliRunner().invoke(app, ["plan", job, "--layout", "tp=8,dp_shard=8", "--placements"])
    assert "dp_shard > tp" in done.output
    assert "the engine's own order is the fastest" in done.output
