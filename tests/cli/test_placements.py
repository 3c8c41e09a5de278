import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.errors import InputError
from meshfit.mesh.groups import coordinates

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
        {
            "name": f"host{host}",
            "ranks": list(range(8 * host, 8 * host + 8)),
            "devices": list(range(8)),
        }
        for host in range(8)
    ]
    assert found["placements"][1]["by_rank_order"][:3] == [0, 8, 16]


def test_the_best_three_are_looked_at_without_a_layout(job):
    assert len(placements(job)) == 3


def test_the_table_names_the_engines_order(job):
    done = CliRunner().invoke(app, ["plan", job, "--layout", "tp=8,dp_shard=8", "--placements"])
    assert "dp_shard > tp" in done.output
    assert "the engine's own order is the fastest" in done.output


def test_the_job_can_lay_its_ranks_in_the_order_of_a_placement(job):
    """What is then predicted, checked and drawn is that placement."""
    (found,) = placements(job, "--layout", "tp=8,dp_shard=8", "--rank-order", "tp,dp_shard")
    worst = found["placements"][1]
    assert worst["order"] == ["tp", "dp_shard"]
    assert worst["engine_order"]
    checked = [
        json.loads(CliRunner().invoke(app, ["check", job, "--json", *order]).stdout)
        for order in ([], ["--rank-order", "tp,dp_shard"])
    ]
    assert checked[1]["notes"] == [
        "ranks are laid over pp, tp, dp_replicate, dp_shard, cp, the outermost first"
    ]
    hosts = [{g["axis"]: len(g["hosts"]) for g in document["groups"]} for document in checked]
    assert hosts == [{"dp_shard": 8, "tp": 1}, {"dp_shard": 1, "tp": 8}]
    usual, other = (document["interval"]["step_time"]["middle"] for document in checked)
    assert other / usual == pytest.approx(1 + worst["slower"], rel=0.05)


def test_the_table_says_how_to_get_a_placement_that_is_faster_than_the_jobs(job):
    arguments = ["plan", job, "--layout", "tp=8,dp_shard=8", "--placements"]
    done = CliRunner().invoke(app, [*arguments, "--rank-order", "tp,dp_shard"])
    assert "for the fastest: --rank-order dp_shard,tp" in done.output


def test_an_engine_of_fixed_axes_says_what_to_do_instead(job):
    Path(job).write_text(JOB + "rank_order: tp > dp_shard\nengine: torchtitan\n")
    with pytest.raises(InputError, match="engine torchtitan lays its ranks as pp, dp_replicate"):
        CliRunner().invoke(app, ["plan", job], catch_exceptions=False)


def test_the_program_of_a_rank_is_that_of_its_place(job, monkeypatch):
    """Ranks 0 and 1 of a pipeline that is laid innermost are on its first and second stage."""
    asked = []
    monkeypatch.setattr(
        "meshfit.funnel.check.dry_run._in_own_process",
        lambda request: asked.append(request) or {"memory": {}},
    )
    layout = ["--layout", "pp=2,tp=1,dp_shard=32", "--rank-order", "dp_shard,pp", "--rank", "1"]
    CliRunner().invoke(app, ["dryrun", job, *layout, "--json"])
    assert coordinates(asked[0].layout, asked[0].rank)["pp"] == 1
