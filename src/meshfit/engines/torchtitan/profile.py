"""torchtitan 0.3.0: option names (``config/configs.py``) and what it checks.

Rules from ``distributed/parallel_dims.py``, ``trainer.py``, ``models/common/decoder.py`` and
``distributed/pipeline_parallel.py`` of that release. Widths that tensor parallelism would cut
unevenly are refused here although DTensor shards them, because nothing tests it.
"""

from dataclasses import replace

from meshfit.mesh.spec import AXES
from meshfit.profile import EngineProfile

RULES: tuple[str, ...] = (
    "world_size",
    "attention_heads_divisible",
    "key_value_heads_divisible",
    "intermediate_size_divisible",
    "expert_width_divisible",
    "shared_expert_width_divisible",
    "vocabulary_divisible",
    "sequence_parallel_needs_tensor_parallel",
    "sequence_divisible_by_tp",
    "sequence_divisible_by_cp",
    "sequence_within_positions",
    "cp_method_known",
    "stages_within_layers_and_ends",
    "ends_within_a_stage",
    "stage_layers_one_per_stage",
    "stage_layers_cover_model",
    "schedule_known",
    "virtual_stages_need_pipeline",
    "virtual_stages_need_interleaving",
    "interleaving_needs_virtual_stages",
    "v_schedule_needs_two_stages",
    "one_f_one_b_fills_pipeline",
    "interleaving_in_whole_rounds",
    "zero_bubble_in_equal_rounds",
    "dualpipe_fills_stages",
    "global_batch_divisible",
    "global_batch_in_local_batches",
    "local_batch_in_micro_batches",
    "zero_stage_known",
    "zero_stage_matches_dp_shard",
    "expert_parallel_needs_experts",
    "experts_divisible",
    "experts_fold_into_dense_ranks",
    "expert_tensor_parallel_unknown",
    "tied_embeddings_on_one_stage",
    "recompute_known",
    "offload_known",
)

WARNINGS: tuple[str, ...] = (
    "micro_batches_fill_pipeline",
    "cuda_graphs_switched_off",
    "tensor_parallel_inside_domain",
    "shards_inside_domain",
)

OPTION_NAMES: dict[str, str] = {
    "dp_replicate": "parallelism.data_parallel_replicate_degree",
    "dp_shard": "parallelism.data_parallel_shard_degree",
    "tp": "parallelism.tensor_parallel_degree",
    "sp": "parallelism.enable_sequence_parallel",
    "cp": "parallelism.context_parallel_degree",
    "pp": "parallelism.pipeline_parallel_degree",
    "vpp": "parallelism.pipeline_parallel_layers_per_stage",
    "schedule": "parallelism.pipeline_parallel_schedule",
    "stage_layers": "parallelism.module_fqns_per_model_part",
    "stage_layers_length": "parallelism.module_fqns_per_model_part",
    "stage_layers_sum": "parallelism.module_fqns_per_model_part",
    "first_stage_less_layers": "parallelism.pipeline_parallel_first_stage_less_layers",
    "last_stage_less_layers": "parallelism.pipeline_parallel_last_stage_less_layers",
    "ep": "parallelism.expert_parallel_degree",
    "zero_stage": "parallelism.fsdp_reshard_after_forward",
    "micro_batch_size": "training.local_batch_size",
    "local_batch_size": "training.local_batch_size",
    "num_micro_batches": "parallelism.pipeline_parallel_microbatch_size",
    "global_batch_size": "training.global_batch_size",
    "sequence_length": "training.seq_len",
    "recompute": "activation_checkpoint",
    "offload": "training.enable_cpu_offload",
    "cuda_graphs": "training.disable_cuda_graphs",
}

NOT_CHECKED: dict[str, str] = {
    "stage weights of first_stage_less_layers beside a schedule file": (
        "pipeline_parallel_schedule_csv is not read"
    ),
    "spmd_backend of the installed torch": "it depends on the torch that is installed",
    "expert kernels that keep CUDA graphs": "a layout does not name the dispatcher",
}

TORCHTITAN = EngineProfile(
    name="torchtitan",
    version="0.3.0",
    rules=RULES,
    warnings=WARNINGS,
    not_checked=NOT_CHECKED,
    rank_order=AXES,
    schedules=(
        "gpipe",
        "1f1b",
        "interleaved_1f1b",
        "looped_bfs",
        "interleaved_zero_bubble",
        "zbv_zero_bubble",
        "dualpipe_v",
    ),
    zero_stages=(0, 2, 3),
    recompute=("none", "operations", "alternate", "full"),
    offload=("none", "cpu"),
    cp_methods=("none", "ring", "all_gather"),
    ring_gradients_in_fp32=True,
    option_names=OPTION_NAMES,
    recomputes_what_is_needed=True,
    has_memory_model=True,
    memory_checked="peaks",
    norm_kernel="fused",
    compiles=True,
    loss="fused",
    gathers_logits=False,
    root_stays_gathered=True,
    last_layer_stays_gathered=True,
    expandable_segments=True,
)

TORCHTITAN_2024 = replace(
    TORCHTITAN,
    version="2024",
    norm_kernel="fp32",
    compiles=False,
    loss="plain",
    repeats_keys=True,
)
"""As its performance notes of 2024 ran it: on PyTorch 2.5, whose RMS norm is several operations,
with an eager loss and keys copied to every query head (``repeat_kv``)."""
