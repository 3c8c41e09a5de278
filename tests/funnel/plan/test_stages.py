import pytest

from meshfit.funnel.plan.plan_document import plan_document
from meshfit.funnel.plan.stages import stage_notes
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job

JOB = """
schema_version: 1
model: {model}
workload: {{kind: training, sequence_length: 4096, global_batch: 256 sequences}}
cluster: {cluster} H100-SXM
engine: {engine}
search: {{pp: [{pp}], tp: [8], vpp: [1], cp: [1], micro_batch_size: [1]}}
"""


@pytest.fixture
def plan(tmp_path):
    def make(**keys):
        path = tmp_path / "job.yaml"
        path.write_text(JOB.format(**keys))
        return make_plan(read_job(path, to_run=False))

    return make


def test_the_published_stages_of_llama_405b_are_explained(plan):
    made = plan(model="llama-3.1-405b", cluster="64x8", engine="megatron", pp=16)
    [note] = stage_notes(made, made.order[:5])
    assert note == (
        "stage_layers 7:8x14:7 spreads 126 layers over 16 stages: embedding and head count as a "
        "layer each, so their stages hold fewer."
    )
    assert note in plan_document(made)["notes"]


def test_lighter_ends_are_compared_with_the_even_split(plan):
    made = plan(model="llama-3.1-8b", cluster="4x8", engine="megatron", pp=4)
    notes = stage_notes(made, range(len(made)))
    heavy = next(note for note in notes if "which it weighs" in note)
    assert "stage_layers 8:9:9:6 spreads 32 layers over 4 stages: the embedding counts" in heavy
    assert "8x4 would take" in heavy
    assert heavy.count("instead of") == 2


def test_even_stages_need_no_note(plan):
    made = plan(model="llama-3.1-8b", cluster="4x8", engine="megatron", pp=1)
    assert stage_notes(made, range(len(made))) == []
