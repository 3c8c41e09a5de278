"""torchtitan's fields for a layout; None: the field keeps its default."""

from meshfit.engines.layout_options import Options, require_whole_checkpoints
from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved1F1B",
    "looped_bfs": "LoopedBFS",
    "interleaved_zero_bubble": "InterleavedZeroBubble",
    "zbv_zero_bubble": "ZBVZeroBubble",
    "dualpipe_v": "DualPipeV",
}


_STAGES_OF_A_RANK = 2
"""Under a schedule of several, where ``pipeline_parallel_layers_per_stage`` is not set."""


def layout_options(layout: LayoutSpec, global_batch_size: int) -> Options:
    """Every field that the layout decides.

    Raises:
        InputError: torchtitan has no field for a part of it.
    """
    if layout.zero_stage == 1 or layout.stage_layers is not None:
        raise InputError(
            f"torchtitan has no field for zero_stage={layout.zero_stage} with "
            f"stage_layers={layout.stage_layers}"
        )
    pipelined = layout.pp > 1
    if pipelined and layout.schedule not in SCHEDULES:
        raise InputError(
            f"torchtitan has no schedule={layout.schedule}; it has {', '.join(SCHEDULES)}"
        )
    if pipelined and layout.vpp not in (1, _STAGES_OF_A_RANK):
        raise InputError(
            f"torchtitan gives a rank {_STAGES_OF_A_RANK} virtual stages unless it is told how many layers "
            f"each has, which is not written; vpp={layout.vpp} is not {_STAGES_OF_A_RANK}"
        )
    require_whole_checkpoints("torchtitan", layout)
    per_rank = global_batch_size // layout.data_parallel_size
    local_batch = per_rank if pipelined else layout.micro_batch_size
    return {
        "parallelism.data_parallel_replicate_degree": layout.dp_replicate,
        "parallelism.data_parallel_shard_degree": layout.dp_shard,
        "parallelism.tensor_parallel_degree": layout.tp,
        "parallelism.enable_sequence_parallel": None if layout.sp == (layout.tp > 1) else layout.sp,
        "parallelism.context_parallel_degree": layout.cp,
        "parallelism.pipeline_parallel_degree": layout.pp,
        "parallelism.pipeline_parallel_schedule": SCHEDULES[layout.schedule] if pipelined else None,
        "parallelism.pipeline_parallel_microbatch_size": layout.micro_batch_size
        if pipelined
        else None,
        "training.local_batch_size": local_batch,
        "training.global_batch_size": None if local_batch == per_rank else global_batch_size,
        "parallelism.expert_parallel_degree": layout.ep,
        "parallelism.fsdp_reshard_after_forward": {2: "never", 3: "always"}.get(layout.zero_stage),
        "training.enable_cpu_offload": layout.offload == "cpu" or None,
    }


_ROTATE_METHODS = {"ring": "alltoall", "all_gather": "allgather"}
"""The older release asked torch's context parallelism for one."""


def toml_options(layout: LayoutSpec, global_batch_size: int) -> Options:
    """The same in the older TOML, which has a table for recomputation."""
    modes = {"none": "none", "operations": "selective", "alternate": "selective", "full": "full"}
    if layout.recompute not in modes:
        raise InputError(f"torchtitan has no field for recompute={layout.recompute}")
    option = "op" if layout.recompute == "operations" else str(layout.recompute_layers)
    return layout_options(layout, global_batch_size) | {
        "parallelism.context_parallel_rotate_method": _ROTATE_METHODS.get(layout.cp_method or "")
        if layout.cp > 1
        else None,
        "activation_checkpoint.mode": modes[layout.recompute],
        "activation_checkpoint.selective_ac_option": option
        if modes[layout.recompute] == "selective"
        else None,
    }


_OBJECTS = {"none": None, "operations": "SelectiveAC.Config()", "full": "FullAC.Config()"}


def python_options(layout: LayoutSpec, global_batch_size: int) -> Options:
    """The same in the function of 0.3, where recomputation is an object, and keys are gathered over cp by
    DTensor (``models/common/decoder_sharding.py``)."""
    if layout.cp > 1 and layout.cp_method not in (None, "all_gather"):
        raise InputError(
            f"torchtitan 0.3 gathers keys and values over cp: cp_method={layout.cp_method} is no option of "
            f"it; write all_gather"
        )
    if layout.recompute not in _OBJECTS:
        raise InputError(f"torchtitan 0.3 has no object for recompute={layout.recompute}")
    return layout_options(layout, global_batch_size) | {
        "activation_checkpoint": _OBJECTS[layout.recompute]
    }
