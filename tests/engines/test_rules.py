"""Every rule that an engine has beyond the native ones: facts that keep it and facts that break it."""

import pytest

from meshfit.engines import PROFILES, engine_profile
from meshfit.mesh.rulebook import RULES
from meshfit.mesh.rules import violations, warnings
from tests.mesh.test_rules import NATIVE_EXAMPLES


def said(engine, facts):
    profile = engine_profile(engine)
    found = (*violations(facts, profile), *warnings(facts, profile))
    return {violation.rule: violation for violation in found}


EXAMPLES = [
    # training/arguments.py, transformer_config.py and parallel_state.py of Megatron-Core 0.19.2
    ("megatron", "world_divisible_by_model_parallel", {"world": 16, "tp": 4}, {"tp": 3}),
    (
        "megatron",
        "world_divisible_by_expert_parallel",
        {"world": 16, "ep": 8, "etp": 1, "pp": 2},
        {"etp": 2},
    ),
    (
        "megatron",
        "key_value_heads_divide_or_replicate",
        {"num_key_value_heads": 4, "tp": 8},
        {"tp": 6},
    ),
    (
        "megatron",
        "hidden_size_divisible_by_heads",
        {"hidden_size": 100, "num_attention_heads": 10},
        {"num_attention_heads": 12},
    ),
    ("megatron", "expert_width_divisible_by_etp", {"moe_intermediate_size": 96, "etp": 2, "ep": 2}, {"etp": 64}),
    ("megatron", "sequence_in_two_chunks", {"sequence_length": 64, "cp": 4}, {"sequence_length": 68}),
    (
        "megatron",
        "sequence_divisible_by_cp_and_tp",
        {"sequence_length": 64, "cp": 4, "tp": 4},
        {"tp": 32},
    ),
    ("megatron", "hierarchical_sizes_make_cp", {"cp": 8, "hierarchical_cp": 8}, {"cp": 4}),
    ("megatron", "layers_divisible_by_stages", {"num_hidden_layers": 32, "pp": 4}, {"pp": 5}),
    (
        "megatron",
        "layers_divisible_by_stages",
        {"num_hidden_layers": 30, "pp": 4, "embedding_counts_as_layer": True, "loss_counts_as_layer": True},
        {"loss_counts_as_layer": False},
    ),
    (
        "megatron",
        "layers_divisible_by_stages",
        {"num_hidden_layers": 126, "pp": 16, "first_stage_layers": 7, "last_stage_layers": 7},
        {"first_stage_layers": 0, "last_stage_layers": 0},
    ),
    (
        "megatron",
        "layers_between_given_ends",
        {"num_hidden_layers": 126, "pp": 16, "first_stage_layers": 7, "last_stage_layers": 7},
        {"first_stage_layers": 8},
    ),
    (
        "megatron",
        "layers_between_given_ends",
        {"num_hidden_layers": 10, "pp": 2, "first_stage_layers": 4, "last_stage_layers": 6},
        {"last_stage_layers": 5},
    ),
    (
        "megatron",
        "layers_divisible_by_virtual_stage",
        {"num_hidden_layers": 96, "pp": 16, "layers_per_virtual_stage": 3},
        {"layers_per_virtual_stage": 4},
    ),
    ("megatron", "experts_need_sequence_parallel", {"ep": 2, "tp": 2}, {"sp": False}),
    ("megatron", "expert_bias_needs_whole_experts", {"moe_bias": True, "etp": 1}, {"etp": 2}),
    ("megatron", "schedule_known", {"schedule": "1f1b"}, {"schedule": "gpipe"}),
    (
        "megatron",
        "parameter_gather_overlaps_sharded_optimizer",
        {"overlap_param_gather": True, "zero_stage": 1, "overlap_grad_reduce": True},
        {"overlap_grad_reduce": False},
    ),
    ("megatron", "tensor_overlap_needs_sequence_parallel", {"tp_comm_overlap": True, "sp": True}, {"sp": False}),
    ("megatron", "torch_fsdp2_runs_alone", {"torch_fsdp2": True, "pp": 1}, {"pp": 2}),
    ("megatron", "torch_fsdp2_runs_alone", {"torch_fsdp2": True}, {"tie_word_embeddings": True}),
    ("megatron", "expert_overlap_has_room", {"overlap_moe": True, "ep": 2}, {"recompute": "full"}),
    (
        "megatron",
        "interleaving_without_overlap_needs_three_ranks",
        {"vpp": 2, "pp": 4, "overlap_p2p": False},
        {"pp": 2},
    ),
    ("megatron", "operations_have_parts", {"recompute": "operations", "num_experts": 8, "latent_attention": False}, {"num_experts": 0}),
    ("megatron", "recompute_method_goes_with_full", {"recompute": "full", "recompute_method": "block"}, {"recompute": "selective"}),
    ("megatron", "recompute_layers_go_with_full", {"recompute": "full", "recompute_num_layers": 1}, {"recompute_num_layers": 0}),
    ("megatron", "zero_shards_something", {"zero_stage": 1, "data_parallel_size": 2}, {"data_parallel_size": 1}),
    ("megatron", "mixer_heads_divisible", {"mixer_heads": 64, "tp": 8}, {"tp": 3}),
    ("megatron", "linear_key_heads_divisible", {"linear_key_heads": 16, "tp": 8}, {"tp": 32}),
    ("megatron", "state_space_groups_divisible", {"state_space_groups": 8, "tp": 8}, {"state_space_groups": 1}),
    ("megatron", "hierarchical_exchange_needs_sizes", {"cp_method": "a2a+p2p", "cp": 8, "hierarchical_cp": 8}, {"hierarchical_cp": 0}),
    ("megatron", "one_connection_has_to_be_set", {"tp": 1, "cp": 1}, {"tp": 2}),
    ("megatron", "one_connection_has_to_be_set", {"tp": 1, "cp": 1}, {"cp": 2}),
    ("megatron", "collectives_need_one_connection", {"cuda_device_max_connections": 1, "tp": 2}, {"cuda_device_max_connections": 8}),
    ("megatron", "shards_need_several_connections", {"cuda_device_max_connections": 8, "zero_stage": 3}, {"cuda_device_max_connections": 1}),
    ("megatron", "vocabulary_padded", {"vocab_size": 151936, "tp": 1}, {"tp": 2}),
    ("megatron", "tied_embeddings_copied", {"tie_word_embeddings": True, "pp": 1, "vocab_size": 8, "hidden_size": 8}, {"pp": 2}),
    # distributed/pipeline_parallel.py, trainer.py and decoder.py of torchtitan 0.3.0
    ("torchtitan", "stages_within_layers_and_ends", {"num_hidden_layers": 8, "pp": 10}, {"pp": 16}),
    (
        "torchtitan",
        "ends_within_a_stage",
        {"num_hidden_layers": 8, "pp": 4, "first_stage_less_layers": 2},
        {"first_stage_less_layers": 4},
    ),
    ("torchtitan", "sequence_within_positions", {"sequence_length": 4096, "max_position_embeddings": 8192}, {"sequence_length": 8193}),
    ("torchtitan", "v_schedule_needs_two_stages", {"schedule": "zbv_zero_bubble", "vpp": 2}, {"vpp": 1}),
    (
        "torchtitan",
        "zero_bubble_in_equal_rounds",
        {"schedule": "interleaved_zero_bubble", "num_micro_batches": 10, "pp": 4},
        {"num_micro_batches": 9},
    ),
    (
        "torchtitan",
        "dualpipe_fills_stages",
        {"schedule": "dualpipe_v", "num_micro_batches": 8, "pp": 4},
        {"num_micro_batches": 7},
    ),
    ("torchtitan", "sequence_divisible_by_tp", {"sequence_length": 8192, "tp": 2}, {"sequence_length": 8193}),
    ("torchtitan", "sequence_divisible_by_cp", {"sequence_length": 64, "cp": 4, "tp": 2, "sp": True}, {"sequence_length": 72}),
    ("torchtitan", "key_value_heads_divisible", {"num_key_value_heads": 8, "tp": 4}, {"tp": 16}),
    ("torchtitan", "vocabulary_divisible", {"vocab_size": 65536, "tp": 2}, {"vocab_size": 65535}),
    ("accelerate", "gpt2_without_tensor_parallel", {"model_type": "gpt2", "tp": 1}, {"tp": 2}),
    ("torchtitan", "cp_method_known", {"cp_method": "all_gather"}, {"cp_method": "all_to_all"}),
    ("torchtitan", "expert_tensor_parallel_unknown", {"etp": 1}, {"etp": 2}),
    ("torchtitan", "tied_embeddings_on_one_stage", {"tie_word_embeddings": True, "pp": 1}, {"pp": 2}),
    ("torchtitan", "cuda_graphs_switched_off", {"pp": 1}, {"pp": 2}),
    ("torchtitan", "cuda_graphs_switched_off", {"pp": 1, "ep": 1}, {"ep": 2}),
    ("torchtitan", "micro_batches_fill_pipeline", {"num_micro_batches": 4, "pp": 4}, {"num_micro_batches": 2}),
    ("torchtitan", "shards_inside_domain", {"dp_shard": 8, "gpus_per_domain": 8}, {"dp_shard": 16}),
    ("torchtitan", "tensor_parallel_inside_domain", {"tp": 8, "gpus_per_domain": 8}, {"tp": 16}),
    ("torchtitan", "global_batch_in_local_batches", {"global_batch_size": 64, "data_parallel_size": 4, "local_batch_size": 8}, {"local_batch_size": 6}),
    ("torchtitan", "local_batch_in_micro_batches", {"local_batch_size": 8, "micro_batch_size": 2, "pp": 2}, {"micro_batch_size": 3}),
    # runtime/config.py and runtime/pipe/engine.py of DeepSpeed 0.19.8
    ("deepspeed", "pipeline_needs_whole_gradients", {"zero_stage": 1, "pp": 2}, {"zero_stage": 2}),
    ("deepspeed", "tensor_parallel_needs_whole_parameters", {"zero_stage": 2, "tp": 2}, {"zero_stage": 3}),
    ("deepspeed", "hybrid_sharding_unknown", {"dp_replicate": 2, "dp_shard": 1}, {"dp_shard": 2}),
    ("deepspeed", "shards_need_a_stage", {"dp_shard": 2, "zero_stage": 1}, {"zero_stage": 0}),
    ("deepspeed", "experts_fold_into_data_parallel", {"data_parallel_size": 8, "ep": 4}, {"ep": 3}),
    ("deepspeed", "virtual_stages_unknown", {"vpp": 1}, {"vpp": 2}),
    (
        "deepspeed",
        "batch_matches_accumulation",
        {"global_batch_size": 64, "data_parallel_size": 2, "micro_batch_size": 4, "gradient_accumulation_steps": 8},
        {"data_parallel_size": 1},
    ),
    ("deepspeed", "heads_divisible_by_all_to_all", {"num_attention_heads": 40, "cp": 8, "cp_method": "all_to_all"}, {"cp": 16}),
    ("deepspeed", "key_value_heads_divide_or_replicate_by_all_to_all", {"num_key_value_heads": 8, "cp": 40, "cp_method": "all_to_all"}, {"cp": 10}),
    ("deepspeed", "offload_known", {"offload": "cpu"}, {"offload": "tape"}),
    # parallelism_config.py of Accelerate 1.15.0
    (
        "accelerate",
        "replicas_with_model_parallel_need_shards",
        {"dp_replicate": 2, "dp_shard": 2, "tp": 2},
        {"dp_shard": 1},
    ),
    ("accelerate", "stage_needs_shards", {"zero_stage": 3, "dp_shard": 2}, {"dp_shard": 1}),
    ("accelerate", "one_way_to_divide_the_sequence", {"cp": 2, "sequence_parallel_size": 1}, {"sequence_parallel_size": 2}),
    ("accelerate", "pipeline_unknown", {"pp": 1}, {"pp": 2}),
    ("accelerate", "expert_parallel_unknown", {"ep": 1}, {"ep": 2}),
    ("accelerate", "sequence_divisible_by_exchange", {"sequence_length": 36, "cp": 6}, {"sequence_length": 42}),
    ("accelerate", "sequence_within_learned_positions", {"sequence_length": 1024, "learned_positions": 1024, "max_position_embeddings": 1024}, {"sequence_length": 1025}),
    # config/parallel.py of vLLM 0.32.0
    ("vllm", "padded_vocabulary_divisible", {"vocab_size": 50257, "tp": 2}, {"tp": 5}),
    ("vllm", "dense_width_keeps_quantization", {"intermediate_size": 14336, "tp": 4, "quantization_block_size": 128}, {"tp": 32}),
    ("vllm", "experts_over_every_rank", {"ep": 8, "tp": 4, "data_parallel_size": 2}, {"ep": 4}),
    ("vllm", "serving_shards_no_states", {"dp_shard": 1}, {"dp_shard": 2}),
    ("vllm", "decode_context_within_tp", {"tp": 4, "dcp": 2}, {"dcp": 3}),
    ("vllm", "decode_context_needs_copied_heads", {"num_key_value_heads": 2, "tp": 4, "dcp": 2}, {"num_key_value_heads": 4}),
    ("vllm", "decode_context_within_tp", {"tp": 4, "dcp": 3, "cp": 3}, {"cp": 1}),
    ("vllm", "decode_context_spans_prefill", {"tp": 4, "dcp": 8, "cp": 2}, {"dcp": 4}),
    ("vllm", "decode_context_within_copies", {"num_key_value_heads": 2, "tp": 8, "dcp": 4}, {"dcp": 8}),
    ("vllm", "decode_context_divides_queries", {"num_attention_heads": 24, "num_key_value_heads": 2, "dcp": 4}, {"dcp": 8}),
    ("vllm", "redundant_experts_need_balancing", {"num_redundant_experts": 32, "eplb": True}, {"eplb": False}),
    ("vllm", "replica_within_hosts", {"tp": 8, "pp": 2, "num_hosts": 2, "gpus_per_host": 8}, {"num_hosts": 1}),
    ("vllm", "ranks_divide_over_hosts", {"tp": 4, "data_parallel_size": 3, "num_hosts": 2}, {"num_hosts": 8}),
    ("vllm", "sequence_within_positions", {"sequence_length": 8193, "max_position_embeddings": 8192, "allows_longer": True}, {"allows_longer": False}),
    ("vllm", "steps_hold_every_request", {"step_tokens": 256, "max_sequences": 256}, {"max_sequences": 512}),
    ("vllm", "steps_hold_whole_prompts", {"step_tokens": 2048, "sequence_length": 4096, "chunked_prefill": True}, {"chunked_prefill": False}),
    ("vllm", "expert_balancing_needs_experts", {"eplb": True, "ep": 2}, {"ep": 1}),
    ("vllm", "elastic_experts_need_balancing", {"elastic_ep": True, "eplb": True}, {"pp": 2}),
    ("vllm", "balanced_experts_divisible", {"eplb": True, "num_experts": 256, "ep": 3, "num_redundant_experts": 2}, {"num_redundant_experts": 0}),
    ("vllm", "replicas_fill_hosts", {"tp": 4, "data_parallel_size": 6, "gpus_per_host": 12}, {"tp": 8, "data_parallel_size": 3}),
    ("vllm", "replicas_fill_hosts", {"tp": 8, "pp": 3, "data_parallel_size": 2, "gpus_per_host": 12}, {"pp": 2}),
    # layers: mamba_mixer2.py, qwen3_next.py, and fp8_utils.py of vLLM
    ("vllm", "expert_width_keeps_quantization", {"moe_intermediate_size": 1536, "tp": 4, "quantization_block_size": 128}, {"tp": 8}),
    ("vllm", "expert_width_keeps_quantization", {"moe_intermediate_size": 1536, "tp": 8, "ep": 8, "quantization_block_size": 128}, {"ep": 1}),
    ("vllm", "shared_expert_width_keeps_quantization", {"shared_expert_intermediate_size": 1280, "tp": 2, "quantization_block_size": 128}, {"tp": 4}),
    ("vllm", "expert_width_divisible", {"moe_intermediate_size": 1536, "tp": 8}, {"tp": 7}),
    ("vllm", "shared_expert_width_divisible", {"shared_expert_intermediate_size": 1280, "tp": 4}, {"tp": 3}),
    ("vllm", "vision_tower_replicated", {"vision_num_attention_heads": 16, "tp": 4}, {"tp": 3}),
    ("vllm", "key_value_heads_replicated", {"num_key_value_heads": 4, "tp": 4}, {"tp": 8}),
    ("vllm", "mixer_heads_divisible", {"mixer_heads": 128, "tp": 8}, {"tp": 3}),
    ("vllm", "linear_key_heads_divisible", {"linear_key_heads": 16, "tp": 16}, {"tp": 32}),
    ("vllm", "state_space_groups_divisible_or_one", {"state_space_groups": 1, "tp": 4}, {"state_space_groups": 2}),
    ("vllm", "state_space_channels_divisible", {"state_space_channels": 8192, "tp": 8}, {"tp": 3}),
    ("vllm", "attention_width_keeps_quantization", {"attention_width": 8192, "tp": 8, "attention_quantization_block_size": 128}, {"tp": 128}),
    (
        "vllm",
        "key_value_width_keeps_quantization",
        {"num_key_value_heads": 8, "head_dim": 64, "tp": 4, "key_value_quantization_rows": 128},
        {"tp": 8},
    ),
    ("vllm", "key_value_heads_divide_or_replicate", {"num_key_value_heads": 2, "tp": 4, "key_value_heads_of_layers": (2, 8)}, {"key_value_heads_of_layers": (4, 6)}),
    # parallel_hook.py of SGLang 0.5.23
    ("sglang", "attention_groups_within_tp", {"tp": 8, "attn_dp": 2, "attn_cp": 2}, {"attn_cp": 8}),
    ("sglang", "replicas_or_attention_data_parallel", {"data_parallel_size": 2, "attn_dp": 1}, {"attn_dp": 2}),
    ("sglang", "expert_data_within_tp", {"tp": 8, "moe_dp": 4}, {"moe_dp": 3}),
    ("sglang", "expert_groups_fill_tp", {"ep": 2, "moe_dp": 4, "tp": 8}, {"pp": 2}),
    ("sglang", "experts_within_tensor_parallel", {"ep": 4, "tp": 8}, {"ep": 16}),
    ("sglang", "one_context_parallel_of_a_server", {"dcp": 2, "prefill_cp": False}, {"prefill_cp": True}),
    ("sglang", "context_parallel_unknown", {"cp": 1}, {"cp": 2}),
    ("sglang", "replicas_on_one_host", {"data_parallel_size": 2, "num_hosts": 1}, {"num_hosts": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "rule", "legal", "illegal"), EXAMPLES)
def test_each_rule_of_an_engine_holds_and_breaks(engine, rule, legal, illegal):
    assert rule not in said(engine, legal)
    assert rule in said(engine, legal | illegal)


@pytest.mark.parametrize("engine", [name for name in PROFILES if name != "native"])
def test_a_group_that_leaves_its_domain_is_a_warning_and_no_violation(engine):
    facts = {"tp": 16, "gpus_per_domain": 8}
    assert "tensor_parallel_inside_domain" in said(engine, facts)
    assert violations(facts, engine_profile(engine)) == ()


def test_megatron_refuses_what_its_own_validation_refused():
    """ENGINES.md, the negative tests that were run: tp3 of 16, 3 layers a virtual stage, ep3 of 8
    experts, a global batch of 63."""
    assert "world_divisible_by_model_parallel" in said("megatron", {"world": 16, "tp": 3})
    assert "experts_divisible" in said("megatron", {"num_experts": 8, "ep": 3})
    batch = {"global_batch_size": 63, "micro_batch_size": 1, "data_parallel_size": 2}
    assert "global_batch_divisible" in said("megatron", batch)
    stages = {"num_hidden_layers": 32, "pp": 4, "layers_per_virtual_stage": 3}
    assert "layers_divisible_by_virtual_stage" in said("megatron", stages)


def test_torchtitan_refuses_what_its_own_trainer_refused():
    """ENGINES.md, the dry runs: tp3 with 256 tokens, 16 stages of 8 layers."""
    assert "sequence_divisible_by_tp" in said("torchtitan", {"sequence_length": 256, "tp": 3})
    assert "stages_within_layers_and_ends" in said("torchtitan", {"num_hidden_layers": 8, "pp": 16})


def test_vllm_refuses_what_its_own_parser_refused():
    """ENGINES.md: tp3 and tp16 of 8 heads, dcp3 with tp4."""
    for tp in (3, 16):
        assert "attention_heads_divisible" in said("vllm", {"num_attention_heads": 8, "tp": tp})
    assert "decode_context_within_tp" in said("vllm", {"tp": 4, "dcp": 3})


def test_every_rule_has_facts_that_keep_it_and_facts_that_break_it():
    shown = {rule for _, rule, _, _ in EXAMPLES} | {rule for rule, _, _ in NATIVE_EXAMPLES}
    assert set(RULES) - shown == set()
