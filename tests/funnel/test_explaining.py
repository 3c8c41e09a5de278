"""The document of ``plan --explain``."""

from dataclasses import replace

import pytest

from meshfit.engines import engine_profile
from meshfit.funnel.explaining import NOT_IN_TIME, explain_document
from meshfit.funnel.planning import make_plan
from meshfit.job.read import read_job
from meshfit.mesh.spec import make_layout
from meshfit.workload.families import read_family

JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {kind: training, sequence_length: 8192, global_batch: 128 sequences}
cluster: 2x8 H100-SXM
"""
PARAMETERS = 8_030_261_248


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_text(JOB)
    return read_job(path)


def rows(job, **keys):
    document = explain_document(job, make_layout(keys))
    assert document["absent"] == {}
    return {row["axis"]: row for row in document["rows"]}


def test_replicas_hold_everything_alike_and_sum_once_a_step(job):
    row = rows(job, dp_replicate=16)["dp_replicate"]
    assert row["replicated"] == {
        "parameters": 4 * PARAMETERS,
        "gradients": 4 * PARAMETERS,
        "optimizer": 8 * PARAMETERS,
    }
    [collective] = row["collectives"]
    assert (collective["collective"], collective["times"]) == ("all_reduce", 1)
    assert collective["bytes"] == pytest.approx(2 * 15 / 16 * 4 * PARAMETERS)
    assert collective["exposed"] > 0
    assert row["leaves_host"]


def test_full_sharding_replicates_nothing_and_zero1_all_but_the_optimizer(job):
    full = rows(job, dp_shard=16)["dp_shard"]
    assert set(full["replicated"].values()) == {0}
    first = rows(job, dp_shard=16, zero_stage=1)["dp_shard"]
    assert first["replicated"] == {
        "parameters": 4 * PARAMETERS,
        "gradients": 4 * PARAMETERS,
        "optimizer": 0,
    }
    assert [one["collective"] for one in first["collectives"]] == ["all_reduce", "broadcast"]


def test_tensor_parallel_replicates_norms_only(job):
    row = rows(job, tp=8, dp_replicate=2)["tp"]
    norms = (2 * 32 + 1) * 4096
    assert row["replicated"]["parameters"] == 4 * norms
    assert not row["leaves_host"]


def test_a_pipeline_holds_a_tied_embedding_twice(job):
    tied = replace(job, model=replace(job.model, tie_word_embeddings=True))
    megatron = replace(tied, profile=engine_profile("megatron"))
    row = rows(megatron, pp=16)["pp"]
    assert row["replicated"]["parameters"] == 4 * 128_256 * 4096
    assert rows(job, pp=16)["pp"]["replicated"]["parameters"] == 0


def test_ranks_of_context_parallel_alone_share_the_work_of_data_parallel(job):
    row = rows(job, cp=16, cp_method="all_gather")["cp"]
    assert {one["collective"] for one in row["collectives"]} == {"all_gather", "all_reduce"}
    assert row["replicated"]["parameters"] == 4 * PARAMETERS


def test_what_a_stand_in_predicted_is_said(job):
    megatron = replace(job, profile=engine_profile("megatron"))
    [note] = explain_document(megatron, make_layout({"tp": 8, "dp_replicate": 2}))["notes"]
    assert note.startswith("memory and time are predicted as for the native engine")


def test_experts_that_are_not_modelled_still_say_what_they_send(job):
    mixtral = read_family(
        "moe",
        {
            "model_type": "mixtral",
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "num_hidden_layers": 4,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "vocab_size": 32000,
        },
    )
    megatron = replace(job, model=mixtral, profile=engine_profile("megatron"))
    layout = make_layout({"dp_shard": 16, "ep": 8}, zero_stage=1)
    document = explain_document(megatron, layout)
    assert "covers dense attention models" in document["absent"]["collectives"]
    row = {row["axis"]: row for row in document["rows"]}["ep"]
    [dispatch] = row["collectives"]
    micro_batches, layers = 8, 4
    tokens = 8192
    assert dispatch["times"] == micro_batches * layers * 4
    assert dispatch["bytes"] == pytest.approx(
        dispatch["times"] * tokens * 2 * 1024 * 2 * 7 / 8, rel=1e-6
    )
    assert (dispatch["exposed"], dispatch["absent"]) == (None, NOT_IN_TIME)
    assert row["divides"] == [{"dimension": "experts", "whole": 8, "part": 1.0, "copies": 1}]


def test_every_fitting_candidate_can_be_explained(job):
    plan = make_plan(job)
    for index in map(int, plan.order[:: max(1, len(plan) // 40)]):
        document = explain_document(job, plan.layout(index))
        assert {row["axis"] for row in document["rows"]} <= {
            "pp", "dp_replicate", "dp_shard", "tp",
        }  # fmt: skip
        for row in document["rows"]:
            assert sum(one["bytes"] for one in row["collectives"]) > 0
