"""Accelerate's keys for a layout; None: the key is left out."""

from meshfit.engines.layout_options import (
    Options,
    require_no_sequence_parallel,
    require_whole_checkpoints,
)
from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec

CP_STRATEGIES = {"ring": "alltoall", "all_gather": "allgather"}
"""Exchange -> ``cp_comm_strategy``: torch's ``alltoall`` passes keys round a ring. Exchanges of heads
(``sp_size``) are DeepSpeed's."""

_SIZES = "parallelism_config.parallelism_config_"
_AXES = ("dp_replicate", "dp_shard", "tp", "cp")


def layout_options(layout: LayoutSpec, _global_batch_size: int) -> Options:
    """Every key that the layout decides. Batches are the training script's.

    Raises:
        InputError: Accelerate has no key for a part of it.
    """
    if layout.pp > 1 or layout.ep > 1 or layout.zero_stage == 1:
        raise InputError("Accelerate has no pipeline, no expert axis and no ZeRO stage 1")
    require_whole_checkpoints("Accelerate", layout)
    require_no_sequence_parallel("Accelerate", layout)
    if layout.cp > 1 and layout.cp_method not in (None, *CP_STRATEGIES):
        raise InputError(
            f"Accelerate has no cp_method={layout.cp_method} under FSDP 2; it has "
            f"{', '.join(CP_STRATEGIES)}"
        )
    if layout.dp_shard == 1 and layout.cp == 1:
        return _replicas(layout)
    return {
        "distributed_type": "FSDP",
        "fsdp_config.fsdp_version": 2,
        f"{_SIZES}dp_replicate_size": layout.dp_replicate,
        f"{_SIZES}dp_shard_size": layout.dp_shard,
        f"{_SIZES}tp_size": layout.tp,
        f"{_SIZES}cp_size": layout.cp,
        f"{_SIZES}cp_comm_strategy": CP_STRATEGIES.get(layout.cp_method or "")
        if layout.cp > 1
        else None,
        "fsdp_config.fsdp_reshard_after_forward": layout.zero_stage == 3
        if layout.dp_shard > 1
        else None,
        "fsdp_config.fsdp_activation_checkpointing": layout.recompute == "full",
        "fsdp_config.fsdp_offload_params": layout.offload == "cpu" or None,
    }


def _replicas(layout: LayoutSpec) -> Options:
    """Plain replicas: ``accelerate launch`` takes ``parallelism_config`` with FSDP 2 alone."""
    if layout.tp > 1 or layout.offload == "cpu":
        raise InputError(
            f"Accelerate has tp={layout.tp} and offload={layout.offload} with FSDP 2 alone, and FSDP "
            f"with dp_shard or cp above 1"
        )
    sizes: Options = dict.fromkeys(f"{_SIZES}{axis}_size" for axis in _AXES)
    return {"distributed_type": "MULTI_GPU", **sizes}
