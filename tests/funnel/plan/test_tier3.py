"""``plan --dry-run``: the leaders' programs beside their predictions."""

import pytest

from meshfit.errors import InputError
from meshfit.funnel.plan import tier3
from meshfit.funnel.plan.tier3 import SHOWN, dry_run_rows
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job
from meshfit.mesh.groups import coordinates

JOB = """
schema_version: 1
model: tiny-llama
engine: {engine}
workload: {{kind: training, sequence_length: 128, global_batch: 8 sequences}}
cluster: 1x4 H100-SXM
search: {{micro_batch_size: 1, recompute: none, vpp: 1}}
"""


def plan_of(engine, folder, rank_order=None):
    path = folder / "job.yaml"
    path.write_text(JOB.format(engine=engine))
    return make_plan(read_job(path, to_run=False, rank_order=rank_order))


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return plan_of("native", tmp_path_factory.mktemp("tier3"))


def test_the_program_of_another_engine_is_not_run(tmp_path):
    with pytest.raises(InputError, match="engine native; this job plans for megatron"):
        dry_run_rows(plan_of("megatron", tmp_path), 1)


def test_what_the_runner_cannot_run_has_its_reason(plan, monkeypatch):
    def refuse(*_arguments, **_keys):
        raise InputError("context parallel layouts are not run yet")

    monkeypatch.setattr(tier3, "dry_run_document", refuse)
    rows, _ = dry_run_rows(plan, 2)
    assert [row["refused"] for row in rows] == ["context parallel layouts are not run yet"] * 2
    assert all(row["memory"] is None and row["seconds"] is None for row in rows)


@pytest.mark.parametrize("rank_order", [None, "dp_replicate,dp_shard,tp,pp"])
def test_the_rank_that_is_run_is_on_the_fullest_stage(rank_order, tmp_path, monkeypatch):
    plan = plan_of("native", tmp_path, rank_order)
    asked = []

    def run(_job, layout, *, rank):
        asked.append((layout, rank))
        return {"memory": dict.fromkeys((*SHOWN, "peak_at"), 0), "seconds": 1.0}

    monkeypatch.setattr(tier3, "dry_run_document", run)
    rows, _ = dry_run_rows(plan, len(plan))
    assert len({row["label"] for row in rows}) == len(rows) > 1
    for layout, rank in asked:
        index = plan.generated.candidates.find(layout)
        place = coordinates(layout, rank, plan.job.profile.rank_order)
        assert place["pp"] == plan.estimates.worst_rank[index]


def test_a_real_program_takes_what_is_predicted_of_it(plan):
    (row,), seconds = dry_run_rows(plan, 1)
    assert row["refused"] is None
    assert seconds >= row["seconds"] > 0
    assert row["memory"].keys() == row["predicted"].keys() == set(SHOWN)
    assert row["predicted"]["allocated"] == pytest.approx(row["memory"]["allocated"], rel=0.05)
