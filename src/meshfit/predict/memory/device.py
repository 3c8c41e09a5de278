"""From allocated bytes to what a CUDA device loses: reserved by the allocator, and outside it.

PyTorch's caching allocator keeps the blocks of every stream apart: what one stream has freed serves
no other. FSDP2 makes gathered parameters' buffers on a stream of its own, and gradients' shards on
another (``torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py``), so that these are reserved
all the time, whenever they are in use. Within a stream blocks of odd sizes leave holes.
"""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.logits import logit_entries, loss_kind
from meshfit.predict.memory.moments import MOMENTS
from meshfit.predict.memory.states import StateBytes
from meshfit.predict.memory.unsharded import units
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.workload.training import Allocator

FloatArray = NDArray[np.float64]

FRAGMENTATION: dict[Allocator, float] = {"default": 0.064, "expandable": 0.005}
"""Reserved over needed, less one. ``default``: SimuMax's ``mem_factor`` of 0.94, fixed segments.
``expandable``: what is left of a page of 2 MiB behind each of some hundred large tensors. Reserved
peaks of torchtitan and torchao without a pipeline (21 rows) lie 1 % above what this gives, in the
median."""

CONTEXT_BYTES = 2**29
"""A CUDA context with PyTorch's kernels: 300-600 MiB by library versions and GPU (1,271 MiB on the
V100 of BigScience's logs, older CUDA loads every kernel at once)."""

COMMUNICATOR_BYTES = 24 * 2 * 5 * 2**20
"""One NCCL communicator: 24 channels, to and from a neighbour, of 4 MiB (``NCCL_BUFFSIZE``) and 1
MiB for its low-latency protocols. Surveys of whole jobs find 0.1 to 0.5 GB."""

BLAS_WORKSPACE_BYTES = 2 * 32 * 2**20
"""cuBLAS's workspace on Hopper, one of the forward's thread and one of autograd's."""


def reserved_bytes(
    at_moments: FloatArray,
    gradients: FloatArray,
    states: StateBytes,
    shape: RankShape,
    group: LayoutGroup,
) -> FloatArray:
    """What the allocator holds at its peak.

    Args:
        at_moments: bytes in use at each moment, [moments, N].
        gradients: of these, the gradients that the optimizer will see, [moments, N].
    """
    columns = group.columns
    sharded = columns.through_fsdp & columns.shards_parameters
    own_stream = at_moments - np.where(sharded, gradients, 0.0)
    own_stream[MOMENTS.index("loss")] += _hole_of_logits(shape, group)
    root, block, _ = units(shape, group)
    others = states.gradients + root.used + block.used
    needed = own_stream.max(axis=0) + np.where(sharded, others, 0.0)
    needed += _held_by_collectives(group) + BLAS_WORKSPACE_BYTES
    return with_fragments(needed, group)


def with_fragments(needed: FloatArray, group: LayoutGroup) -> FloatArray:
    """What the allocator holds for bytes in use, by the allocator that the group runs with."""
    return np.asarray(needed * (1 + FRAGMENTATION[_allocator_of(group)]))


def _held_by_collectives(group: LayoutGroup) -> FloatArray:
    """Gathered inputs of the two blocks before: a collective's stream holds its tensors until it is
    done (``record_stream``), when the next ones have been made. One kernel of gather and matmul
    (async tensor parallelism) makes none."""
    columns = group.columns
    if group.training.runtime.overlap_tensor_parallel:
        return np.zeros(len(group))
    whole = columns.tokens * float(group.model.hidden_size * group.training.precision.compute_bytes)
    return np.where(columns.sequence_split > 1, 2 * whole, 0.0)


def _allocator_of(group: LayoutGroup) -> Allocator:
    """As the job says; expandable where the engine's launcher asks for it."""
    if group.profile.expandable_segments:
        return "expandable"
    return group.training.runtime.allocator


def _hole_of_logits(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """What the logits in the compute type leave: they are freed once their fp32 copy is made, and
    too small for the fp32 gradients that come later."""
    element = group.training.precision.compute_bytes
    is_hole = shape.chunks[-1].has_head and loss_kind(group) == "plain" and group.pipeline.pp == 1
    if not is_hole or element == 4:
        return np.zeros(len(group))
    return logit_entries(group) * element


def context_bytes(group: LayoutGroup) -> FloatArray:
    """A CUDA context, and one communicator for every group of more than one rank that a rank is in:
    the world, shards (over dp_shard and cp), replicas, tp, cp, pp and ep. A group of all ranks is
    the world's (``DeviceMesh`` takes the default group for it)."""
    c = group.candidates
    world = c.dp_shard * c.dp_replicate * c.tp * c.cp * c.pp
    axes = (c.dp_shard * c.cp, c.dp_replicate, c.tp, c.cp, c.pp, c.ep)
    own = sum(((axis > 1) & (axis < world)).astype(np.float64) for axis in axes)
    return np.asarray(CONTEXT_BYTES + (own + (world > 1)) * COMMUNICATOR_BYTES)
