"""Conventions of every framework, on the same row."""

import pytest

from meshfit.validate.frameworks import READERS, read_job
from meshfit.validate.rows import NotModelledError
from tests.validate.builders import row


def job(framework, **columns):
    return read_job(row(framework=framework, **columns))


@pytest.mark.parametrize(
    ("framework", "profile"),
    [
        ("NeMo", "nemo"),
        ("Megatron-LM", "megatron-lm"),
        ("Megatron-Core", "megatron"),
        ("Megatron-DeepSpeed (ZeRO-3, old branch)", "megatron-deepspeed-zero3"),
        ("Megatron-DeepSpeed", "megatron-deepspeed"),
        ("Megatron + DeepSpeed 3D", "megatron-deepspeed"),
        ("HF Trainer + DeepSpeed ZeRO-3", "hf-trainer-deepspeed"),
        ("torchtitan + torchao", "torchtitan"),
        ("llm-foundry/composer FSDP1", "llm-foundry"),
        ("fms-fsdp (FSDP1)", "fms-fsdp"),
        ("InternEvo", "internevo"),
        ("torchtune", "torchtune"),
        ("LitGPT", "litgpt"),
        ("nanotron", "nanotron"),
        ("picotron", "nanotron"),
        ("GPT-NeoX", "megatron-deepspeed"),
        ("Primus (torchtitan)", "torchtitan"),
        ("Primus (Megatron-LM)", "megatron-lm"),
        ("Megatron-Bridge", "nemo"),
        ("PyTorch FSDP", "fsdp1"),
        ("LLaMA-Factory", "hf-trainer-deepspeed"),
        ("TRL + PEFT (FSDP)", "hf-trainer"),
        ("Axolotl + DeepSpeed", "hf-trainer-deepspeed"),
        ("ColossalAI Gemini (ZeRO-3 + offload policy)", "colossalai-gemini"),
    ],
)
def test_each_framework_has_its_profile(framework, profile):
    assert job(framework).profile.name == profile


def test_megatron_lm_of_2024_is_megatron_core():
    core = job("Megatron-LM", date="2024-11", grad_accum="4")
    assert core.profile.megatron.transformer_engine
    assert not job("Megatron-LM", date="2021-05..07").profile.megatron.transformer_engine
    assert job("Megatron-LM", framework_ver="core r0.8.0").profile.megatron.transformer_engine


def test_fsdp1_has_flat_parameters_and_litgpt_sums_their_gradients_once():
    for framework in ("PyTorch FSDP", "llm-foundry/composer FSDP1", "fms-fsdp (FSDP1)", "LitGPT"):
        assert job(framework).profile.flat_parameters
    assert job("llm-foundry/composer FSDP1").profile.reduces_each_micro_batch
    assert not job("LitGPT").profile.reduces_each_micro_batch


def test_ms_swift_trains_in_sixteen_bits_and_llama_factory_with_fp32_states():
    one = {"n_gpus": "1", "dp": "1", "zero_stage": "0"}
    assert job("ms-swift", **one).training.precision.parameter_bytes == 2
    assert job("LLaMA-Factory", **one).training.precision.parameter_bytes == 4


def test_layers_on_devices_that_wait_for_each_other_are_a_reason():
    with pytest.raises(NotModelledError, match="layers over devices without micro-batches"):
        job("ms-swift", pp="2", dp="1", pp_schedule="naive layer split (device_map)")


@pytest.mark.parametrize(
    ("policy", "gpu", "offload"),
    [
        ("cuda", "A100-80GB", None),
        ("cpu", "A100-80GB", "cpu"),
        ("auto", "B200-192GB", None),
        ("auto", "A10G-24GB", "cpu"),
    ],
)
def test_gemini_uses_the_host_as_its_policy_says_or_as_memory_asks(policy, gpu, offload):
    cells = {"n_gpus": "1", "dp": "1", "gbs": "1", "zero_stage": "3", "seq_len": ""}
    found = job("ColossalAI Gemini", **cells, gpu=gpu, offload=f"gemini policy {policy}")
    assert found.layout.offload == offload
    assert found.training.sequence_length == 1024


def test_every_reader_can_be_reached():
    for words, reader in READERS:
        found = next(read for known, read in READERS if known in words)
        assert found is reader


def test_an_unknown_framework_is_a_reason():
    with pytest.raises(NotModelledError, match="not modelled: nnscaler"):
        job("nnscaler")


def test_nemo_recomputes_core_attention_where_it_does_not_say():
    assert job("NeMo", recompute="").layout.recompute == "selective"
    assert job("Megatron-LM", recompute="").layout.recompute == "none"


def test_what_was_assumed_is_said():
    assert job("NeMo", recompute="", mbs="").assumed == (
        "mbs: micro-batch 1",
        "recompute: selective",
    )
    assert job("NeMo", recompute="full").assumed == ()


def test_nemos_recipes_overlap_their_collectives():
    runtime = job("NeMo").training.runtime
    assert runtime.overlap_gradients
    assert runtime.overlap_tensor_parallel


def test_torchtitan_cuts_the_local_batch_into_one_micro_batch_a_stage():
    found = job("torchtitan", pp="8", dp="1", mbs="32", gbs="32", n_layers="32")
    assert found.layout.micro_batch_size == 4
    assert found.layout.num_micro_batches(found.training.global_batch_size) == 8


def test_torchtitan_without_a_pipeline_takes_the_local_batch_whole():
    assert job("torchtitan", mbs="2").layout.micro_batch_size == 2


def test_megatron_lm_pads_gpt2s_vocabulary_where_none_is_stated():
    assert job("Megatron-LM", vocab="").model.vocab_size == 51200


def test_maxtext_recomputes_in_full_and_sums_gradients_in_16_bits():
    read = job("MaxText", zero_stage="3", dp_shard="4")
    assert read.profile.name == "xla"
    assert (read.layout.recompute, read.layout.dp_replicate, read.layout.dp_shard) == ("full", 2, 4)
    assert read.training.precision.gradient_bytes == 2


@pytest.mark.parametrize("framework", ["MaxText", "PaxML"])
def test_what_xla_shards_is_the_planners_choice_where_it_is_not_stated(framework):
    stated = job(framework, zero_stage="3", dp_shard="8").layout
    assert (stated.dp_replicate, stated.dp_shard) == (1, 8)
    # 8B and its states fill two accelerators of 80 GB, and fewer ranks gather sooner
    small = job(framework, zero_stage="3", n_gpus="64", dp="64")
    assert small.layout.dp_replicate * small.layout.dp_shard == 64
    assert small.layout.dp_replicate > 1
    assert small.assumed[0] == f"dp_shard: {small.layout.dp_shard}, the planner's choice"


def test_megatrons_experts_are_cut_over_tensor_parallel_ranks_unless_said_otherwise():
    experts = {"arch": "moe", "note": "8 experts top 2", "tp": "4", "ep": "2", "dp": "2"}
    assert job("NeMo", **experts).layout.etp == 4
    assert job("NeMo", **experts, etp="1").layout.etp == 1
    assert job("NeMo", tp="4", dp="2").layout.etp == 1


def test_nemos_recipes_of_gpt_keep_megatrons_dropout():
    gpt = job("NeMo", pos_embedding="learned").training.runtime
    assert (gpt.attention_dropout, gpt.hidden_dropout) == (0.1, 0.1)
    assert job("NeMo").training.runtime.hidden_dropout is None
    stated = job("NeMo", pos_embedding="learned", hidden_dropout="0").training.runtime
    assert stated.hidden_dropout == 0


def test_llm_foundrys_loss_is_fused():
    assert job("llm-foundry/composer FSDP1").training.runtime.loss == "fused"


def test_deepspeed_keeps_gradients_in_sixteen_bits():
    found = job("Megatron-DeepSpeed", precision="fp16")
    assert found.training.precision.gradient_bytes == 2


def test_fine_tuning_recipes_keep_pure_bf16_and_checkpoint_by_their_own_defaults():
    assert job("torchtune", recompute="").layout.recompute == "full"


def test_torchtunes_recipe_of_8b_on_one_device_pages_its_optimizer_and_steps_in_backward():
    keys = {"n_gpus": "1", "dp": "1", "task": "sft-full", "model": "llama3.1-8b"}
    unstated, stated = (job("torchtune", **keys, optimizer=name) for name in ("", "AdamW"))
    assert unstated.training.optimizer == "adamw_8bit"
    assert unstated.training.runtime.paged_optimizer
    assert unstated.training.runtime.optimizer_in_backward
    assert not stated.training.runtime.paged_optimizer


def test_torchtunes_loss_is_in_chunks_but_in_the_rows_that_come_before_it():
    rows = ("llama3-8b lora", "+Compile", "+Chunked CE")
    found = [job("torchtune", source_loc=words).training.runtime.loss for words in rows]
    assert found == ["chunked", "plain", "chunked"]
    assert job("LitGPT", recompute="").layout.recompute == "none"
    assert job("LitGPT").training.precision.name == "bf16"
