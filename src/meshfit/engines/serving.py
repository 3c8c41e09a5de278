"""What profiles of the engines that serve have in common: no states are sharded, nothing is recomputed,
and the same maps are cut the same way."""

from collections.abc import Mapping

from meshfit.profile import EngineProfile, ServingOptions

CUT_MAPS_DIVISIBLE: tuple[str, ...] = (
    "world_size",
    "attention_heads_divisible",
    "key_value_heads_divide_or_replicate",
    "intermediate_size_divisible",
    "expert_width_divisible",
    "shared_expert_width_divisible",
    "mixer_heads_divisible",
    "linear_key_heads_divisible",
    "state_space_groups_divisible_or_one",
    "state_space_channels_divisible",
)
"""Rules on heads and widths that tensor parallelism cuts."""

CUTS_KEEP_QUANTIZATION: tuple[str, ...] = (
    "dense_width_keeps_quantization",
    "expert_width_keeps_quantization",
    "shared_expert_width_keeps_quantization",
    "attention_width_keeps_quantization",
    "key_value_width_keeps_quantization",
)
"""Rules on cuts through blocks of scales."""


def serving_profile(
    *,
    name: str,
    version: str,
    serving: ServingOptions,
    rules: tuple[str, ...],
    warnings: tuple[str, ...],
    not_checked: Mapping[str, str],
    option_names: Mapping[str, str],
    expert_fold: tuple[str, ...],
    vocabulary_multiple: int = 1,
) -> EngineProfile:
    """The profile of a server: replicas outermost, tp innermost, and nothing that only training has."""
    return EngineProfile(
        name=name,
        version=version,
        kind="serving",
        serving=serving,
        rules=rules,
        warnings=warnings,
        not_checked=not_checked,
        rank_order=("dp_replicate", "dp_shard", "pp", "cp", "tp"),
        schedules=(),
        zero_stages=(0,),
        default_zero_stage=0,
        recompute=("none",),
        sequence_parallel=False,
        expert_fold=expert_fold,
        vocabulary_multiple=vocabulary_multiple,
        option_names=option_names,
    )
