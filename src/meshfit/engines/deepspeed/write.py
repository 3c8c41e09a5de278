"""DeepSpeed's keys for a layout; None: the key is left out."""

from meshfit.engines.layout_options import (
    Options,
    require_no_sequence_parallel,
    require_whole_checkpoints,
)
from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec

GRADIENT_BYTES = 2
"""Of the elements that ``reduce_bucket_size`` counts: gradients travel in 16 bits."""


def layout_options(layout: LayoutSpec, global_batch_size: int) -> Options:
    """Every key that the layout decides.

    Raises:
        InputError: a part of it is no key of the file (stages, experts), or there is none.
    """
    if layout.pp > 1 or layout.ep > 1:
        raise InputError("pipeline and expert parallelism are no keys of DeepSpeed's file")
    require_whole_checkpoints("DeepSpeed", layout)
    require_no_sequence_parallel("DeepSpeed", layout)
    if layout.zero_stage and layout.dp_shard == 1:
        raise InputError(
            f"DeepSpeed shards over all data-parallel ranks: write dp_shard={layout.data_parallel_size} "
            f"for zero_stage={layout.zero_stage}, or zero_stage=0"
        )
    if layout.dp_shard > 1 and layout.dp_replicate > 1:
        raise InputError("DeepSpeed has no key for hybrid sharding at this stage")
    return {
        "zero_optimization.stage": layout.zero_stage,
        "zero_optimization.offload_optimizer.device": "cpu" if layout.offload == "cpu" else None,
        "tensor_parallel.autotp_size": layout.tp if layout.tp > 1 else None,
        "sequence_parallel_size": layout.cp if layout.cp > 1 else None,
        "train_micro_batch_size_per_gpu": layout.micro_batch_size,
        "gradient_accumulation_steps": layout.num_micro_batches(global_batch_size),
    }
