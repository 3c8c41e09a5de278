"""What assumptions do to the leaders of a plan."""

import pytest
from rich.console import Console

from meshfit.funnel.plan.sensitivity import ASSUMPTIONS, sensitivity_document
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job
from meshfit.report.predicted.sensitivity import sensitivity_view

JOB = """
schema_version: 1
model: {model}
engine: {engine}
workload: {{sequence_length: 2048, global_batch: 128 sequences}}
cluster: {cluster}
search: {{micro_batch_size: 1, vpp: 1, schedule: 1f1b, recompute: none, tp: 1, pp: [1, 4], zero_stage: [0, 1, 2]}}
"""


def plan_of(folder, model="llama-3.1-8b", engine="native", cluster="4x8 H100-SXM", assume=None):
    path = folder / "job.yaml"
    path.write_text(JOB.format(model=model, engine=engine, cluster=cluster))
    return make_plan(read_job(path, assume=assume, to_run=False))


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    plan = plan_of(tmp_path_factory.mktemp("dense"))
    return plan, {row["assumption"]: row for row in sensitivity_document(plan)}


def test_only_what_can_move_a_job_is_varied(dense, tmp_path):
    assert list(dense[1]) == ["straggler", "contention", "length_imbalance"]
    one_node = sensitivity_document(plan_of(tmp_path, cluster="1x8 H100-SXM"))
    assert [row["assumption"] for row in one_node] == ["straggler", "length_imbalance"]


def test_leaders_stand_as_in_the_plan_where_nothing_is_changed(dense):
    plan, rows = dense
    for row in (rows["contention"], rows["length_imbalance"]):
        assert row["values"][0] == 1.0
        for position, leader in enumerate(row["leaders"]):
            index = int(plan.order[position])
            assert leader["label"] == plan.layout(index).label
            assert leader["rank"][0] == position + 1
            assert leader["step_time"][0] == pytest.approx(plan.estimates.step_middle_s[index])


def test_no_step_gets_shorter_as_assumptions_get_worse(dense):
    for row in dense[1].values():
        for leader in row["leaders"]:
            assert leader["step_time"] == sorted(leader["step_time"])
            assert len(leader["step_time"]) == len(leader["rank"]) == len(row["values"])


def test_a_slow_network_changes_the_winner_where_it_is_said_to(dense, tmp_path):
    plan, rows = dense
    (change, *_) = rows["contention"]["changes"]
    assert change["from"]["label"] == plan.layout(int(plan.order[0])).label
    for value, expected in ((0.98 * change["at"], "from"), (1.02 * change["at"], "to")):
        there = plan_of(tmp_path, assume=f"contention={value}")
        assert there.layout(int(there.order[0])).label == change[expected]["label"]


def test_experts_that_are_spread_lose_by_imbalance(tmp_path):
    plan = plan_of(tmp_path, model="qwen3-30b-a3b", engine="megatron", cluster="2x8 H100-SXM")
    row = next(row for row in sensitivity_document(plan) if row["assumption"] == "expert_imbalance")
    for leader in row["leaders"]:
        grows = leader["step_time"][-1] > 1.05 * leader["step_time"][0]
        assert grows == (leader["layout"].get("ep", 1) > 1)


def test_every_assumption_says_what_it_means(dense):
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(sensitivity_view(list(dense[1].values())))
    text = capture.get()
    assert "contention: how many times as long" in text
    assert "is faster than" in text
    rows = [
        {"assumption": one.name, "planned": None, "values": [1], "leaders": [], "changes": []}
        for one in ASSUMPTIONS
    ]
    console.print(sensitivity_view(rows))
