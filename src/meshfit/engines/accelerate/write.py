"""Accelerate's keys for a layout; None: the key is left out."""

from meshfit.engines.layout_options import Options
from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec

_SIZES = "parallelism_config.parallelism_config_"


def layout_options(layout: LayoutSpec, _global_batch_size: int) -> Options:
    """Every key that the layout decides. Batches are the training script's.

    Raises:
        InputError: Accelerate has no key for a part of it.
    """
    if layout.pp > 1 or layout.ep > 1 or layout.zero_stage == 1:
        raise InputError("Accelerate has no pipeline, no expert axis and no ZeRO stage 1")
    return {
        f"{_SIZES}dp_replicate_size": layout.dp_replicate,
        f"{_SIZES}dp_shard_size": layout.dp_shard,
        f"{_SIZES}tp_size": layout.tp,
        f"{_SIZES}cp_size": layout.cp,
        "fsdp_config.fsdp_reshard_after_forward": layout.zero_stage == 3
        if layout.dp_shard > 1
        else None,
        "fsdp_config.fsdp_activation_checkpointing": layout.recompute == "full",
        "fsdp_config.fsdp_offload_params": layout.offload == "cpu" or None,
    }
