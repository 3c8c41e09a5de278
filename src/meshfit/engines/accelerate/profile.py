"""Accelerate 1.15.0: option names (its YAML) and what it checks.

Rules from ``parallelism_config.py``. Tensor parallelism is the plan that transformers has for the
model, which neither replicates key/value heads nor pads. Context parallelism over keys is torch's
own, over heads (``sp_size``) DeepSpeed's. There is no pipeline and no expert axis.
"""

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
    "sequence_divisible_by_exchange",
    "sequence_within_learned_positions",
    "heads_divisible_by_all_to_all",
    "key_value_heads_divide_or_replicate_by_all_to_all",
    "one_way_to_divide_the_sequence",
    "pipeline_unknown",
    "stage_layers_one_per_stage",
    "stage_layers_cover_model",
    "stage_layers_positive",
    "virtual_stages_unknown",
    "global_batch_divisible",
    "zero_stage_known",
    "shards_need_a_stage",
    "stage_needs_shards",
    "replicas_with_model_parallel_need_shards",
    "expert_parallel_unknown",
    "expert_tensor_parallel_unknown",
    "gpt2_without_tensor_parallel",
    "recompute_known",
    "offload_known",
)

WARNINGS: tuple[str, ...] = ("tensor_parallel_inside_domain", "shards_inside_domain")

OPTION_NAMES: dict[str, str] = {
    "dp_replicate": "parallelism_config_dp_replicate_size",
    "dp_shard": "parallelism_config_dp_shard_size",
    "tp": "parallelism_config_tp_size",
    "cp": "parallelism_config_cp_size",
    "ulysses": "parallelism_config_sp_size",
    "cp_method": "parallelism_config_cp_comm_strategy",
    "zero_stage": "fsdp_reshard_after_forward",
    "world": "num_processes",
    "recompute": "fsdp_activation_checkpointing",
    "offload": "fsdp_offload_params",
}

NOT_CHECKED: dict[str, str] = {
    "unknown nested keys of the file": "a matter of its file, which a layout is not",
    "tp without transformers installed": "it depends on the machine that runs it",
    "cp or tp under a distributed_type other than FSDP": "a layout does not name the plugin",
}

ACCELERATE = EngineProfile(
    name="accelerate",
    version="1.15.0",
    rules=RULES,
    warnings=WARNINGS,
    not_checked=NOT_CHECKED,
    rank_order=AXES,
    schedules=(),
    zero_stages=(0, 2, 3),
    recompute=("none", "full"),
    offload=("none", "cpu"),
    sequence_parallel=False,
    option_names=OPTION_NAMES,
    recomputes_what_is_needed=True,
)
