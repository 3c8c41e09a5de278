"""Megatron-Core 0.19.2: option names (``training/arguments.py``) and what it checks.

Rules from ``training/arguments.py``, ``core/transformer/transformer_config.py``,
``core/model_parallel_config.py``, ``core/parallel_state.py`` and
``core/pipeline_parallel/schedules.py`` of that release. Expert parallelism is a second
decomposition of the same ranks: world = etp x ep x pp x expert data.

``dp_shard`` ranks share a distributed optimizer (stage 1) or Megatron-FSDP's shards (2 and 3);
``dp_replicate`` counts the optimizer's instances, or plain data parallelism at stage 0.
"""

from meshfit.mesh.spec import AXES
from meshfit.profile import EngineProfile

RULES: tuple[str, ...] = (
    "world_size",
    "world_divisible_by_model_parallel",
    "world_divisible_by_expert_parallel",
    "attention_heads_divisible",
    "key_value_heads_divide_or_replicate",
    "hidden_size_divisible_by_heads",
    "intermediate_size_divisible",
    "expert_width_divisible",
    "expert_width_divisible_by_etp",
    "shared_expert_width_divisible",
    "sequence_parallel_needs_tensor_parallel",
    "sequence_in_two_chunks",
    "sequence_divisible_by_cp_and_tp",
    "heads_divisible_by_all_to_all",
    "hierarchical_sizes_make_cp",
    "layers_fill_stages",
    "layers_divisible_by_stages",
    "layers_between_given_ends",
    "layers_divisible_by_virtual_stage",
    "stage_layers_one_per_stage",
    "stage_layers_cover_model",
    "schedule_known",
    "virtual_stages_need_pipeline",
    "virtual_stages_need_interleaving",
    "interleaving_needs_virtual_stages",
    "interleaving_in_whole_rounds",
    "global_batch_divisible",
    "zero_stage_known",
    "zero_stage_matches_dp_shard",
    "expert_parallel_needs_experts",
    "experts_divisible",
    "experts_need_sequence_parallel",
    "expert_bias_needs_whole_experts",
    "recompute_known",
    "offload_known",
    "parameter_gather_overlaps_sharded_optimizer",
    "tensor_overlap_needs_sequence_parallel",
    "torch_fsdp2_runs_alone",
    "expert_overlap_has_room",
    "interleaving_without_overlap_needs_three_ranks",
    "recompute_method_goes_with_full",
    "recompute_layers_go_with_full",
)

WARNINGS: tuple[str, ...] = (
    "key_value_heads_replicated",
    "vocabulary_padded",
    "tied_embeddings_copied",
    "micro_batches_fill_pipeline",
    "zero_shards_something",
    "tensor_parallel_inside_domain",
    "shards_inside_domain",
)

OPTION_NAMES: dict[str, str] = {
    "dp_replicate": "--num-distributed-optimizer-instances",
    "dp_shard": "--use-distributed-optimizer",
    "tp": "--tensor-model-parallel-size",
    "sp": "--sequence-parallel",
    "cp": "--context-parallel-size",
    "cp_method": "--cp-comm-type",
    "hierarchical_cp": "--hierarchical-context-parallel-sizes",
    "pp": "--pipeline-model-parallel-size",
    "vpp": "--num-virtual-stages-per-pipeline-rank",
    "layers_per_virtual_stage": "--num-layers-per-virtual-pipeline-stage",
    "stage_layers": "--pipeline-model-parallel-layout",
    "stage_layers_length": "--pipeline-model-parallel-layout",
    "stage_layers_sum": "--pipeline-model-parallel-layout",
    "first_stage_layers": "--decoder-first-pipeline-num-layers",
    "last_stage_layers": "--decoder-last-pipeline-num-layers",
    "embedding_counts_as_layer": "--account-for-embedding-in-pipeline-split",
    "loss_counts_as_layer": "--account-for-loss-in-pipeline-split",
    "ep": "--expert-model-parallel-size",
    "etp": "--expert-tensor-parallel-size",
    "zero_stage": "--data-parallel-sharding-strategy",
    "micro_batch_size": "--micro-batch-size",
    "num_micro_batches": "--global-batch-size",
    "global_batch_size": "--global-batch-size",
    "sequence_length": "--seq-length",
    "hidden_size": "--hidden-size",
    "vocab_size": "--make-vocab-size-divisible-by",
    "world": "WORLD_SIZE",
    "recompute": "--recompute-granularity",
    "offload": "--fine-grained-activation-offloading",
    "overlap_param_gather": "--overlap-param-gather",
    "tp_comm_overlap": "--tp-comm-overlap",
    "torch_fsdp2": "--use-torch-fsdp2",
    "overlap_moe": "--overlap-moe-expert-parallel-comm",
}

MEGATRON = EngineProfile(
    name="megatron",
    version="0.19.2",
    rules=RULES,
    warnings=WARNINGS,
    rank_order=AXES,
    schedules=("1f1b", "interleaved_1f1b"),
    zero_stages=(0, 1, 2, 3),
    default_zero_stage=1,
    recompute=("none", "selective", "full"),
    offload=("none", "cpu"),
    expert_fold=("dp_replicate", "dp_shard", "cp", "tp"),
    vocabulary_multiple=128,
    vocabulary_multiple_per_rank=True,
    option_names=OPTION_NAMES,
)
