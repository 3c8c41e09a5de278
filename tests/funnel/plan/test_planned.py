"""One document of a plan and what else is asked of it."""

import pytest

from meshfit.errors import InputError
from meshfit.funnel.plan.planned import PlanRequest, nothing_fits, planned_document
from meshfit.job.read import read_job

JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {kind: training, sequence_length: 8192, global_batch: 64 sequences}
cluster: 1x8 H100-SXM
search: {vpp: 1, micro_batch_size: 1, pp: [1, 2]}
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("planned") / "job.yaml"
    path.write_text(JOB)
    return lambda **asked: read_job(path, to_run=False, **asked)


def test_nothing_is_said_that_was_not_asked(job):
    document = planned_document(job(), PlanRequest(top=3))
    assert len(document["candidates"]) == 3
    assert not {"explain", "placements", "sensitivity", "dry_run"} & set(document)
    assert not nothing_fits(document)


def test_the_recommended_layout_is_explained_and_the_best_are_placed(job):
    document = planned_document(job(), PlanRequest(top=3, explain=True, placements=True))
    assert document["explain"]["label"] == document["recommended"]["label"]
    placed = [one["label"] for one in document["placements"]]
    assert placed == [one["label"] for one in document["candidates"]]


def test_a_layout_that_is_given_is_looked_at_in_place_of_the_recommended_one(job, tmp_path):
    trace = tmp_path / "step.json"
    asked = PlanRequest(of_given_layout=True, explain=True, placements=True, timeline=trace)
    document = planned_document(job(layout="tp=4,dp_shard=2,zero_stage=3"), asked)
    assert {document["explain"]["label"], *(one["label"] for one in document["placements"])} == {
        "dp_shard=2,tp=4,zero_stage=3"
    }
    assert trace.is_file()


def test_a_given_layout_that_is_not_legal_is_refused_by_its_rules(job):
    asked = PlanRequest(of_given_layout=True, explain=True)
    with pytest.raises(InputError, match=r"tp=3.* is not legal:\n  "):
        planned_document(job(layout="tp=3"), asked)
