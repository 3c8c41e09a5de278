"""The document of ``plan --json``: the space, by rule."""

import json

import pytest

from meshfit.funnel.plan.plan_document import plan_document, unranked_document
from meshfit.funnel.space.planning import legal_space, make_plan
from meshfit.job.read import read_job
from meshfit.mesh.spec import make_layout

JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {kind: training, sequence_length: 8192, global_batch: 128 sequences}
cluster: 2x8 H100-SXM
"""


@pytest.fixture(scope="module", params=["native", "megatron"])
def plan(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "job.yaml"
    path.write_text(JOB + f"engine: {request.param}\n")
    return make_plan(read_job(path, to_run=False))


def test_each_rule_has_a_rejected_layout_and_a_legal_neighbour(plan):
    space = json.loads(json.dumps(plan_document(plan)))["space"]
    assert space["examples"].keys() == space["rejected"].keys()
    legal = {plan.layout(index) for index in range(len(plan))}
    for rule, example in space["examples"].items():
        nearest = make_layout(example["nearest"], zero_stage=plan.job.profile.default_zero_stage)
        assert nearest in legal, rule
        assert make_layout(example["layout"]) not in legal, rule
        assert example["message"] or rule == "not_modelled"


def test_a_stand_in_is_named_among_the_notes(plan):
    notes = plan_document(plan)["notes"]
    assert any("as for the native engine" in note for note in notes) == (
        not plan.job.profile.has_memory_model
    )


def test_a_model_that_cannot_be_estimated_has_its_space_counted_and_the_reason_told(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        "schema_version: 1\nmodel: qwen3-30b-a3b\ncluster: 1x8 H100-SXM\n"
        "workload: {sequence_length: 4096, global_batch: 64 sequences}\n"
    )
    job = read_job(path, to_run=False)
    why = "the memory model does not cover it"
    document = unranked_document(job, legal_space(job), seconds=0.5, why=why)
    assert document["candidates"] == []
    assert document["space"]["legal"] > 0
    assert document["space"]["rejected"]["one_f_one_b_fills_pipeline"] > 0
    assert why in document["notes"][-1]


def test_what_binds_a_candidate_is_its_largest_term_as_simulated(plan):
    for candidate in plan_document(plan)["candidates"]:
        terms = {name: seconds or 0.0 for name, seconds in candidate["time"].items()}
        terms.pop("step")
        assert terms[candidate["binding"]] == max(terms.values())
