"""Gathered parameters, whole gradients, and the buffers of data and pipeline parallelism."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.kept import boundary
from meshfit.predict.memory.matrices import largest_matrix
from meshfit.predict.memory.moments import Moments
from meshfit.predict.memory.states import StateBytes, frozen_bytes, uses_ddp, waits_for_replicas
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import Held, ends_held, held_by_layers, rank_held
from meshfit.predict.shape.schedule import InFlight, RankShape

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One FSDP unit on a rank, in bytes of what it is when it is whole.

    Attributes:
        used: its parameters as layers use them.
        made: gradients as backward makes them; ``reduced``: copies of them that are summed;
            ``kept``: as they wait for the last micro-batch.
    """

    used: FloatArray
    made: FloatArray
    reduced: FloatArray
    kept: FloatArray


def unit_of(held: Held, group: LayoutGroup) -> Unit:
    """What a part of the model takes when it is gathered."""
    columns, precision = group.columns, group.training.precision
    trained = held.trained.on_rank(columns)
    frozen = frozen_bytes(held, group.training, precision.compute_bytes).on_rank(columns)
    used = trained * precision.compute_bytes + frozen
    if group.profile.flat_parameters:
        return _flat_unit(used, group)
    return Unit(
        used=used,
        made=trained * precision.compute_bytes,
        reduced=trained * precision.gradient_bytes,
        kept=trained * precision.gradient_bytes,
    )


def _flat_unit(used: FloatArray, group: LayoutGroup) -> Unit:
    """FSDP1's: autograd makes the gradient of the whole flat parameter, frozen weights in it are
    zeros (``_flat_param.py``). A few elements of padding to equal shards are left out."""
    precision = group.training.precision
    growth = precision.gradient_bytes / precision.compute_bytes
    copies = growth if growth > 1 else 0.0
    return Unit(used=used, made=used, reduced=used * copies, kept=used)


def units(shape: RankShape, group: LayoutGroup) -> tuple[Unit, Unit, Unit]:
    """The root unit (embedding, final norm, head), the largest layer, and all together."""
    model, adapter = group.model, group.training.adapter
    kinds = [held for held, _ in held_by_layers(shape, model, adapter)]
    largest = max(kinds, key=lambda held: held.all.total, default=Held())
    return (
        unit_of(ends_held(shape, model, adapter), group),
        unit_of(largest, group),
        unit_of(rank_held(shape, model, adapter), group),
    )


def communication_moments(
    shape: RankShape, group: LayoutGroup, held: InFlight, states: StateBytes
) -> Moments:
    """Gathered parameters, whole gradients and buffers.

    Under FSDP2's hooks each layer is a unit; embedding, final norm and head form the root unit. A
    unit is gathered for its forward and again (stage 3) for its backward, ``live_unsharded_blocks``
    ahead; the root then stays to the end. The input of the last scatter lives until the next one.
    """
    columns, precision = group.columns, group.training.precision
    root, block, everything = units(shape, group)
    ahead = min(group.profile.live_unsharded_blocks, sum(c.num_layers for c in shape.chunks))

    freed = columns.frees_after_forward
    kept = np.where(columns.keeps_gradients, everything.kept, 0.0)
    partial = np.where(waits_for_replicas(group), states.gradients, 0.0)
    last_scatter = np.where(columns.shards_parameters & ~columns.keeps_gradients, root.reduced, 0)
    waiting = np.where(held.accumulating, kept + partial + last_scatter, 0.0)
    matrix = largest_matrix(shape, group) * precision.compute_bytes
    whole_block = np.where(columns.keeps_gradients, 0.0, block.made + block.reduced)
    reducing = np.maximum(root.made + root.reduced, block.made + block.reduced)

    stays = root.used * group.profile.root_stays_gathered
    stays = stays + block.used * group.profile.last_layer_stays_gathered
    forward = np.where(freed, root.used + block.used, everything.used)
    in_layer = np.where(freed, root.used + ahead * block.used, everything.used)
    reshards = freed & (~columns.keeps_gradients | group.profile.flat_parameters)
    at_end = np.where(reshards, root.used + block.used, everything.used)
    in_forward = np.where(freed, root.used + block.used, everything.used + block.used)
    at = {
        "forward_end": in_forward + waiting,
        "head": in_forward + waiting,
        "loss": np.where(freed, stays, everything.used) + waiting,
        "head_backward": forward + waiting,
        "backward_start": in_layer + waiting + matrix,
        "layer_passed": in_layer + waiting + whole_block,
        "backward_end": at_end
        + np.where(columns.keeps_gradients, kept + block.reduced, reducing)
        + partial,
        "optimizer": np.zeros(len(group)),
    }
    standing = _standing_buffers(shape, group)
    return Moments(
        **{name: standing + np.where(columns.through_fsdp, b, 0.0) for name, b in at.items()}
    )


def _standing_buffers(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """DDP's buckets where they are a copy, and receive buffers for every micro-batch."""
    columns, profile = group.columns, group.profile
    buffers = np.zeros(len(group))
    if not profile.gradients_live_in_buckets:
        held = rank_held(shape, group.model, group.training.adapter)
        buffers += np.where(uses_ddp(group), unit_of(held, group).reduced, 0.0)
    if profile.pipeline_buffers and group.pipeline.pp > 1:
        received = sum((not c.has_embedding) + (not c.has_head) for c in shape.chunks)
        buffers += received * columns.micro_batches * boundary(group)
    return buffers
