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
    "mixer_heads_divisible",
    "linear_key_heads_divisible",
    "state_space_groups_divisible",
    "sequence_parallel_needs_tensor_parallel",
    "sequence_in_two_chunks",
    "sequence_divisible_by_cp_and_tp",
    "heads_divisible_by_all_to_all",
    "hierarchical_sizes_make_cp",
    "hierarchical_exchange_needs_sizes",
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
    "collectives_need_one_connection",
    "shards_need_several_connections",
)

WARNINGS: tuple[str, ...] = (
    "key_value_heads_replicated",
    "vocabulary_padded",
    "tied_embeddings_copied",
    "micro_batches_fill_pipeline",
    "zero_shards_something",
    "one_connection_has_to_be_set",
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
    "cuda_device_max_connections": "CUDA_DEVICE_MAX_CONNECTIONS",
}

NOT_CHECKED: dict[str, str] = {
    "weight shards beside tensor parallelism (GTP)": "no layout has them",
    "evaluation batch": "it is the training batch here",
    "more than one option for virtual stages": "a layout says them once",
    "ckpt-format fsdp_dtensor with Megatron-FSDP": "a layout does not name a checkpoint format",
    "torch FSDP2 with fp16": "no precision here is fp16",
    "token dispatcher under overlapped expert communication": "a layout does not name it",
    "pipeline_dtype": "it follows from the precision",
}

HOST_S_PER_LAYER = 1e-3
"""Issuing one pass over a layer: some 25 kernels behind Transformer Engine's Python. Estimated, within
a factor of two, from the smallest steps of Megatron-LM's README on H100, which are bound by it."""

MEGATRON = EngineProfile(
    name="megatron",
    version="0.19.2",
    rules=RULES,
    warnings=WARNINGS,
    not_checked=NOT_CHECKED,
    rank_order=AXES,
    schedules=("1f1b", "interleaved_1f1b"),
    zero_stages=(0, 1, 2, 3),
    default_zero_stage=1,
    recompute=("none", "selective", "block", "full"),
    offload=("none", "cpu"),
    expert_fold=("dp_replicate", "dp_shard", "cp", "tp"),
    vocabulary_multiple=128,
    vocabulary_multiple_per_rank=True,
    has_memory_model=True,
    memory_checked="records",
    memory_model="megatron",
    gathers_logits=False,
    saves_gathered_inputs=False,
    kernels="megatron",
    host_s_per_layer=HOST_S_PER_LAYER,
    fused_layers=True,
    attention="cudnn",
    hides_tensor_parallel_backward=True,
    hides_pipeline_exchange=True,
    scatters_pipeline_exchange=True,
    stage_2_shards_parameters=False,
    scatters_gradients=True,
    overlaps_gradients=False,
    option_names=OPTION_NAMES,
)
