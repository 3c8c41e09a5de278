"""The document of ``plan --explain``."""

from dataclasses import replace

import pytest

from meshfit.engines import engine_profile
from meshfit.funnel.explain.explaining import explain_document
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job
from meshfit.mesh.spec import make_layout
from meshfit.workload.families import read_family
from meshfit.workload.models import catalogue, read_model
from tests.workload.configs import HYBRID

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
    assert row["replicated"]["parameters"] == 2 * 128_256 * 4096
    summed = row["collectives"][-1]
    assert (summed["collective"], summed["times"]) == ("all_reduce", 1)
    assert summed["bytes"] == 2 * 128_256 * 4096 * 4 // 2
    assert rows(job, pp=16)["pp"]["replicated"]["parameters"] == 0


def test_ranks_of_context_parallel_alone_share_the_work_of_data_parallel(job):
    row = rows(job, cp=16, cp_method="all_gather")["cp"]
    assert {one["collective"] for one in row["collectives"]} == {"all_gather", "all_reduce"}
    assert row["replicated"]["parameters"] == 4 * PARAMETERS


def test_what_a_stand_in_predicted_is_said(job):
    accelerate = replace(job, profile=engine_profile("accelerate"))
    [note] = explain_document(accelerate, make_layout({"tp": 8, "dp_shard": 2}))["notes"]
    assert note.startswith("memory and time are predicted as for the native engine")


MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
}
ATTENTION = (2 * 16 + 2 * 8) * 64 * 1024
NORMS = 2 * 1024
ROUTER = 8 * 1024
EXPERT = 3 * 2048 * 1024
LAYER_WITHOUT_EXPERTS = ATTENTION + NORMS + ROUTER
ENDS = 2 * 32000 * 1024 + 1024
TOKENS = 8192


def explained(job, config, engine, **keys):
    profile = engine_profile(engine)
    model = read_family("other", config)
    layout = make_layout(keys, zero_stage=profile.default_zero_stage)
    document = explain_document(replace(job, model=model, profile=profile), layout)
    return {row["axis"]: row for row in document["rows"]}


def sent(row):
    """Collective -> (times, bytes)."""
    return {one["collective"]: (one["times"], one["bytes"]) for one in row["collectives"]}


def test_tokens_go_to_their_experts_and_back_in_every_pass(job):
    row = explained(job, MIXTRAL, "megatron", dp_shard=16, ep=8)["ep"]
    micro_batches, layers = 8, 4
    times = micro_batches * layers * 2 * 2
    assert sent(row) == {"all_to_all": (times, times * TOKENS * 2 * 1024 * 2 * 7 // 8)}
    [part] = row["collectives"][0]["parts"]
    assert part["formula"] == "128 x 7/8 x 8,192 tokens x 2 experts x 1,024 x 2 B"
    assert row["divides"] == [{"dimension": "experts", "whole": 8, "part": 1.0, "copies": 1}]


def test_experts_are_reduced_over_the_ranks_that_hold_the_same_ones(job):
    """Megatron-Core, stage 1: what is shared over 16 ranks, one expert a layer over 2."""
    found = explained(job, MIXTRAL, "megatron", dp_shard=16, ep=8)
    shared, experts = 4 * LAYER_WITHOUT_EXPERTS + ENDS, 4 * EXPERT
    assert sent(found["dp_shard"]) == {
        "reduce_scatter": (1, shared * 4 * 15 // 16),
        "all_gather": (1, shared * 2 * 15 // 16),
    }
    assert found["edp"]["degree"] == 2
    assert sent(found["edp"]) == {
        "reduce_scatter": (1, experts * 4 // 2),
        "all_gather": (1, experts * 2 // 2),
    }
    assert found["edp"]["replicated"] == {
        "parameters": (shared + experts) * 2,
        "gradients": (shared + experts) * 4,
        "optimizer": 0,
    }
    assert found["dp_shard"]["replicated"]["parameters"] == shared * 2


def test_full_sharding_gathers_experts_over_their_own_ranks(job):
    """torchtitan: 2 x 8 = 16 ranks of dp_shard and tp; the 8 experts over 8, twice."""
    found = explained(job, MIXTRAL, "torchtitan", dp_shard=8, tp=2, ep=8)
    micro_batches, layers = 128 // 8, 4
    expert_bytes = EXPERT * 2 // 2
    assert sent(found["edp"]) == {
        "all_gather": (micro_batches * layers * 2, micro_batches * layers * 2 * expert_bytes),
        "reduce_scatter": (micro_batches * layers, micro_batches * layers * 2 * expert_bytes),
    }
    times, dispatched = sent(found["ep"])["all_to_all"]
    assert dispatched == times * (TOKENS // 2) * 2 * 1024 * 2 * 7 // 8
    assert set(found["edp"]["replicated"].values()) == {0}


def test_under_expert_parallelism_only_attention_exchanges_over_tp(job):
    """Routed experts take their tokens as they lie between blocks; without ep they are cut."""
    keys = {"dp_shard": 8, "tp": 2}
    whole = explained(job, MIXTRAL, "megatron", **keys, ep=8)["tp"]
    cut = explained(job, MIXTRAL, "megatron", **keys)["tp"]
    micro_batches, layers, passes, ends = 16, 4, 2, 2
    assert sent(whole)["reduce_scatter"][0] == micro_batches * (layers * passes + ends)
    assert sent(cut)["reduce_scatter"][0] == micro_batches * (2 * layers * passes + ends)
    each = TOKENS * 1024 * 2 // 2
    assert sent(cut)["reduce_scatter"][1] == sent(cut)["reduce_scatter"][0] * each


def test_ranks_that_share_an_expert_see_each_others_tokens(job):
    found = explained(job, MIXTRAL, "megatron", dp_shard=8, tp=2, ep=4, etp=2)["etp"]
    micro_batches, layers, passes = 16, 4, 2
    times = micro_batches * layers * passes
    size = 2 * (TOKENS // 2) * 2 * 1024 * 2
    assert sent(found) == {
        "all_gather": (times, times * size // 2),
        "reduce_scatter": (times, times * size // 2),
    }
    assert [one["dimension"] for one in found["divides"]] == ["expert width"]


LATENT = {
    "model_type": "deepseek_v3",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "n_group": 2,
    "topk_group": 1,
    "vocab_size": 1024,
    "max_position_embeddings": 8192,
}


def test_latents_stay_whole_and_their_heads_are_cut(job):
    row = explained(job, LATENT, "megatron", tp=8, dp_replicate=2)["tp"]
    latents = 512 * 96 + 96 + 512 * (64 + 16) + 64
    norms, router = 2 * 512, 8 * 512
    whole = 3 * (latents + norms) + 2 * router + 512
    assert row["replicated"]["parameters"] == whole * 2
    assert {one["dimension"]: one["part"] for one in row["divides"]} | {"query heads": 1} == {
        "query heads": 1,
        "FFN width": 128,
        "shared expert": 32,
        "expert width": 32,
        "vocabulary": 128,
        "sequence between blocks": 1024,
    }


def test_shared_experts_are_cut_where_routed_ones_are_not(job):
    """One dense layer: attention and MLP; two others: attention and the shared expert. Megatron-Core
    gathers inputs again for the gradients of weights."""
    row = explained(job, LATENT, "megatron", dp_shard=8, tp=2, ep=8)["tp"]
    micro_batches, passes, ends = 16, 2, 2
    assert sent(row)["reduce_scatter"][0] == micro_batches * (passes * 6 + ends)
    assert sent(row)["all_gather"][0] == micro_batches * ((passes + 1) * 6 + ends + 1)


def test_context_parallel_passes_keys_and_values_of_expanded_heads(job):
    row = explained(job, LATENT, "megatron", cp=4, dp_shard=4)["cp"]
    micro_batches, layers, passes = 32, 3, 3
    times = micro_batches * layers * passes
    width = 8 * (32 + 16 + 32)
    assert sent(row)["send_recv"] == (times, times * TOKENS * width * 2 * 3 // 4)


def test_a_hybrid_passes_keys_and_values_of_its_attention_only(job):
    row = explained(job, HYBRID, "megatron", cp=4, dp_shard=4)["cp"]
    times = 32 * 1 * 3
    assert sent(row)["send_recv"] == (times, times * TOKENS * 2 * 4 * 16 * 2 * 3 // 4)


def test_mixers_are_cut_where_the_engine_cuts_them(job):
    keys = {"tp": 2, "dp_replicate": 8}
    megatron = explained(job, HYBRID, "megatron", **keys)["tp"]
    accelerate = explained(job, HYBRID, "accelerate", **keys)["tp"]
    norms = (2 * 4 + 1) * 128
    assert megatron["replicated"]["parameters"] == norms * 2
    assert accelerate["replicated"]["parameters"] > 4 * norms
    assert "heads of mixers" in {one["dimension"] for one in megatron["divides"]}
    assert "heads of mixers" not in {one["dimension"] for one in accelerate["divides"]}
    assert sent(megatron)["reduce_scatter"][0] > sent(accelerate)["reduce_scatter"][0]


def test_stage_2_is_what_the_engine_makes_of_it(job):
    """FSDP2 gathers parameters every micro-batch; DeepSpeed keeps them and gathers the update."""
    native = rows(job, dp_shard=16, zero_stage=2)["dp_shard"]
    deepspeed = replace(job, profile=engine_profile("deepspeed"))
    found = rows(deepspeed, dp_shard=16, zero_stage=2)["dp_shard"]
    assert native["replicated"]["parameters"] == 0
    assert found["replicated"] == {"parameters": 2 * PARAMETERS, "gradients": 0, "optimizer": 0}
    assert sent(found) == {
        "reduce_scatter": (8, 8 * PARAMETERS * 4 * 15 // 16),
        "all_gather": (1, PARAMETERS * 2 * 15 // 16),
    }
    assert sent(native)["all_gather"] == (
        8 * 33,
        pytest.approx(8 * PARAMETERS * 2 * 15 / 16),
    )


def test_a_server_has_no_training_step(job):
    vllm = replace(job, profile=engine_profile("vllm"))
    document = explain_document(vllm, make_layout({"tp": 8, "dp_replicate": 2}))
    assert "vllm serves" in document["absent"]["collectives"]
    assert {row["collectives"] for row in document["rows"]} == {None}


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_model_of_the_catalogue_is_explained_for_every_training_engine(job, name):
    model = read_model(name)
    for engine in ("native", "torchtitan", "megatron", "deepspeed", "accelerate"):
        profile = engine_profile(engine)
        for keys in ({"dp_shard": 16}, {"tp": 2, "dp_replicate": 8}, {"pp": 2, "dp_shard": 8}):
            layout = make_layout(keys, zero_stage=profile.default_zero_stage)
            document = explain_document(replace(job, model=model, profile=profile), layout)
            for row in document["rows"]:
                for one in row["collectives"]:
                    assert one["bytes"] == sum(part["bytes"] for part in one["parts"]) > 0
                    assert all(part["formula"].endswith(" B") for part in one["parts"])


def test_every_fitting_candidate_can_be_explained(job):
    plan = make_plan(job)
    for index in map(int, plan.order[:: max(1, len(plan) // 40)]):
        document = explain_document(job, plan.layout(index))
        assert {row["axis"] for row in document["rows"]} <= {
            "pp", "dp_replicate", "dp_shard", "cp", "tp",
        }  # fmt: skip
        for row in document["rows"]:
            assert sum(one["bytes"] for one in row["collectives"]) > 0
