"""The profile of our own runner: what it runs, and under which rules."""

from meshfit.mesh.candidates import RECOMPUTE, SCHEDULES
from meshfit.mesh.spec import AXES
from meshfit.profile import EngineProfile

RULES: tuple[str, ...] = (
    "world_size",
    "attention_heads_divisible",
    "key_value_heads_divide_or_replicate",
    "intermediate_size_divisible",
    "shared_expert_width_divisible",
    "sequence_parallel_needs_tensor_parallel",
    "sequence_divisible_by_cp_and_tp",
    "sequence_divisible_by_exchange",
    "sequence_within_learned_positions",
    "cp_method_known",
    "inner_ranks_divide_hierarchical_exchange",
    "heads_divisible_by_all_to_all",
    "key_value_heads_divide_or_replicate_by_all_to_all",
    "ring_takes_no_window",
    "ring_takes_no_packed_documents",
    "layers_fill_stages",
    "stage_layers_one_per_stage",
    "stage_layers_cover_model",
    "stage_layers_positive",
    "schedule_known",
    "virtual_stages_need_pipeline",
    "virtual_stages_need_interleaving",
    "interleaving_needs_virtual_stages",
    "v_schedule_needs_two_stages",
    "one_f_one_b_fills_pipeline",
    "interleaving_in_whole_rounds",
    "zero_bubble_in_equal_rounds",
    "dualpipe_fills_stages",
    "split_backward_keeps_parameters",
    "packed_documents_on_one_stage",
    "global_batch_divisible",
    "zero_stage_known",
    "zero_stage_matches_dp_shard",
    "zero1_without_replicas",
    "muon_without_zero1",
    "expert_parallel_needs_experts",
    "experts_divisible",
    "experts_fold_into_dense_ranks",
    "expert_tensor_parallel_needs_expert_parallel",
    "expert_width_cut_within_tensor_parallel",
    "expert_width_divisible",
    "expert_width_divisible_by_etp",
    "tokens_sent_once",
    "experts_beyond_plain_replicas",
    "auxiliary_loss_on_one_stage",
    "auxiliary_loss_of_whole_sequences",
    "expert_capacity_of_whole_sequences",
    "adapters_beside_whole_matrices",
    "recompute_known",
    "offload_not_run",
)

HOST_S_PER_LAYER = 0.6e-3
TENSOR_PARALLEL_HOST_S_PER_LAYER = 4e-3
"""Measured on one core of an AMD EPYC with AVX-512 (torch 2.13, transformers 5.24, eager): a Llama
of hidden size 16, eight layers less two, best of 40; forward 0.57 ms a layer and backward 0.56 ms,
under tensor and sequence parallelism on a mesh of one rank 3.5 ms and 6.0 ms."""

WARNINGS: tuple[str, ...] = (
    "micro_batches_fill_pipeline",
    "key_value_heads_replicated",
    "tied_embeddings_copied",
    "tensor_parallel_inside_domain",
    "shards_inside_domain",
)

NATIVE = EngineProfile(
    name="native",
    version="1",
    rules=RULES,
    warnings=WARNINGS,
    rank_order=AXES,
    any_rank_order=True,
    schedules=SCHEDULES,
    zero_stages=(0, 1, 2, 3),
    recompute=RECOMPUTE,
    cp_method="ring",
    cp_methods=("none", "ring", "all_gather", "all_to_all", "hierarchical"),
    has_memory_model=True,
    memory_checked="peaks",
    recomputes_what_is_needed=True,
    frozen_as_trained=True,
    root_stays_gathered=True,
    gathers_before_dispatch=True,
    gathers_logits=False,
    gathers_latents=True,
    host_s_per_layer=HOST_S_PER_LAYER,
    tensor_parallel_host_s_per_layer=TENSOR_PARALLEL_HOST_S_PER_LAYER,
)
