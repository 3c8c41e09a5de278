"""DeepSpeed 0.19.8: option names (its JSON) and what it checks.

Rules from ``runtime/config.py``, ``runtime/pipe/engine.py`` (stage 2 and 3 refuse a pipeline), the
AutoTP training tutorial (stages 0 to 2) and ``runtime/sequence_parallel``. Context parallelism is
Ulysses, over heads. ep is an argument of the MoE layer, not a key of the file. AutoTP can cut
widths and the vocabulary unevenly, so no rule is made of them.
"""

from meshfit.mesh.spec import AXES
from meshfit.profile import EngineProfile

RULES: tuple[str, ...] = (
    "world_size",
    "attention_heads_divisible",
    "key_value_heads_divisible",
    "sequence_divisible_by_exchange",
    "sequence_within_learned_positions",
    "cp_method_known",
    "heads_divisible_by_all_to_all",
    "key_value_heads_divide_or_replicate_by_all_to_all",
    "layers_fill_stages",
    "stage_layers_one_per_stage",
    "stage_layers_cover_model",
    "stage_layers_positive",
    "schedule_known",
    "virtual_stages_unknown",
    "global_batch_divisible",
    "batch_matches_accumulation",
    "zero_stage_known",
    "shards_need_a_stage",
    "pipeline_needs_whole_gradients",
    "tensor_parallel_needs_whole_parameters",
    "hybrid_sharding_unknown",
    "expert_parallel_needs_experts",
    "experts_divisible",
    "experts_fold_into_data_parallel",
    "expert_tensor_parallel_unknown",
    "recompute_known",
    "offload_known",
)

WARNINGS: tuple[str, ...] = (
    "tied_embeddings_copied",
    "micro_batches_fill_pipeline",
    "zero_shards_something",
    "tensor_parallel_inside_domain",
    "shards_inside_domain",
)

OPTION_NAMES: dict[str, str] = {
    "dp_shard": "zero_optimization.stage",
    "tp": "tensor_parallel.autotp_size",
    "cp": "sequence_parallel_size",
    "ulysses": "sequence_parallel_size",
    "pp": "PipelineModule(num_stages)",
    "stage_layers": "PipelineModule(partition_method)",
    "ep": "MoE(ep_size)",
    "zero_stage": "zero_optimization.stage",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "num_micro_batches": "gradient_accumulation_steps",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "global_batch_size": "train_batch_size",
    "recompute": "activation_checkpointing",
    "offload": "zero_optimization.offload_optimizer",
}

NOT_CHECKED: dict[str, str] = {
    "unknown keys of the file, at the top and inside blocks": (
        "a matter of its file, which a layout is not"
    ),
    "mics_shard_size, which this release has removed": "no layout asks for it",
    "widths and vocabulary that tp does not divide": "AutoTP cuts them unevenly",
}

DEEPSPEED = EngineProfile(
    name="deepspeed",
    version="0.19.8",
    rules=RULES,
    warnings=WARNINGS,
    not_checked=NOT_CHECKED,
    rank_order=AXES,
    schedules=("1f1b",),
    zero_stages=(0, 1, 2, 3),
    recompute=("none", "full"),
    offload=("none", "cpu"),
    sequence_parallel=False,
    stage_2_shards_parameters=False,
    scatters_gradients=True,
    replicates_through_fsdp=False,
    cp_method="all_to_all",
    cp_methods=("none", "all_to_all"),
    expert_fold=("dp_replicate", "dp_shard"),
    option_names=OPTION_NAMES,
    has_memory_model=True,
    memory_model="deepspeed",
)
