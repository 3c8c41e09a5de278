"""Peak memory of one pipeline rank by category, for all layouts that share its pipeline.

Categories are those of ``meshfit.breakdown.MemoryBreakdown``, filled the way ``meshfit.measure``
fills them:

- ``parameters``, ``gradients``, ``optimizer``: what the rank holds between steps, its own shards.
- ``activations``: what autograd keeps (``activations.layer_tensors``) for the micro-batches in
  flight, the layer being recomputed, and autocast's copies of weights.
- ``logits_and_loss``: logits, log-probabilities and their gradients.
- ``communication``: gathered parameters and whole gradients of sharded states, reduce-scatter
  inputs, DDP's buckets, pipeline receive buffers.
- ``temporary``: gradients of activations in backward, temporaries of the optimizer.

The peak is the largest of four moments. *loss*: every activation is there, and the loss's own
buffers. *backward_start*: all activations, the first layer's backward, the head's gradient.
*backward_end*: all gradients, one layer left of the micro-batch. *optimizer*: all states and the
step's temporaries.

Ignored: kernel workspaces, the few bytes a token of ids, masks and rotary tables, padding of
uneven shards.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.predict.activations import (
    FP32_BYTES,
    BytesPerToken,
    LossBytes,
    backward_bytes,
    checkpoint_tensors,
    head_tensors,
    layer_tensors,
    loss_bytes,
    total,
)
from meshfit.predict.group import LayoutGroup
from meshfit.predict.parameters import (
    blocks_parameters,
    ends_parameters,
    head_matrix,
    layer_parameters,
    on_rank,
    rank_parameters,
)
from meshfit.predict.schedule import Chunk, InFlight, RankShape, in_flight
from meshfit.workload.counts import ParameterSplit
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.training import OPTIMIZER_MOMENTS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOMENTS: tuple[str, ...] = ("loss", "backward_start", "backward_end", "optimizer")


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Bytes at the peak: one array of shape [N] a category, and which moment it is."""

    categories: Mapping[str, FloatArray]
    moment: IntArray

    @property
    def allocated(self) -> FloatArray:
        return np.asarray(sum(self.categories.values()))


def rank_memory(shape: RankShape, group: LayoutGroup) -> RankMemory:
    """Memory of one pipeline rank at its peak, for every layout of ``group``."""
    held = in_flight(group.pipeline, shape.rank, group.columns.micro_batches)
    states = _states(shape, group)
    sharding = _sharding(shape, group, held)
    buffers = _standing_buffers(shape, group)
    activations = _activations(shape, group, held)
    logits = _logits(shape, group, held)
    gradients = np.where(group.columns.keeps_gradients, 0.0, states.gradients)
    waiting = np.where(held.accumulating | _in_buckets(group), gradients, 0.0)
    temporary = _temporaries(shape, group, held)
    zeros = np.zeros(len(group))
    at = {
        "gradients": (waiting, waiting, gradients, states.gradients),
        "activations": (activations.kept, activations.kept + activations.live, activations.end, zeros),
        "logits_and_loss": (logits.loss, logits.backward, logits.end, zeros),
        "communication": tuple(buffers + bytes_ for bytes_ in (sharding.loss, sharding.backward_start, sharding.backward_end, zeros)),
        "temporary": (zeros, temporary, temporary, _optimizer_temporaries(group, states)),
    }  # fmt: skip
    moment = np.argmax(sum(np.stack(values) for values in at.values()), axis=0)
    peak = {name: np.choose(moment, values) for name, values in at.items()}
    peak |= {"parameters": states.parameters, "optimizer": states.optimizer}
    return RankMemory(
        categories={name: peak.get(name, zeros) for name in MEMORY_CATEGORIES}, moment=moment
    )


@dataclass(frozen=True, kw_only=True)
class _States:
    parameters: FloatArray
    gradients: FloatArray
    optimizer: FloatArray


def _states(shape: RankShape, group: LayoutGroup) -> _States:
    """Model states of one rank: parameters over tp, then over the group that shards them.

    ``N / tp * (parameter / D23 + gradient / D23 + moments / D123)``, with D the ranks over which
    the ZeRO stages named divide (1910.02054, section 5). Padding of shards is ignored.
    """
    columns, precision = group.columns, group.training.precision
    held = on_rank(rank_parameters(shape, group.model), columns.tp)
    sharded = held / np.where(columns.shards_parameters, columns.state_shard, 1)
    stepped = held / np.where(columns.shards_optimizer, columns.state_shard, 1)
    moments = OPTIMIZER_MOMENTS[group.training.optimizer]
    return _States(
        parameters=sharded * precision.parameter_bytes,
        gradients=sharded * precision.gradient_bytes,
        optimizer=stepped * moments * precision.moment_bytes,
    )


@dataclass(frozen=True, kw_only=True)
class _AtMoments:
    loss: FloatArray
    backward_start: FloatArray
    backward_end: FloatArray


def _sharding(shape: RankShape, group: LayoutGroup, held: InFlight) -> _AtMoments:
    """Gathered parameters and whole gradients of sharded states (FSDP2).

    Each layer is a unit; embedding, final norm and head form the root unit, which stays gathered
    from forward to the end of backward, and whose gradients are reduced last.
    """
    columns, precision, profile = group.columns, group.training.precision, group.profile
    model, tp = group.model, columns.tp
    used_bytes, reduced_bytes = precision.compute_bytes, precision.gradient_bytes
    copied_bytes = np.where(
        columns.shards_parameters | (used_bytes != precision.parameter_bytes), used_bytes, 0
    )
    root = on_rank(ends_parameters(shape, model), tp)
    block = on_rank(_largest_block(shape, model), tp)
    everything = on_rank(rank_parameters(shape, model), tp)
    head = on_rank(head_matrix(shape, model), tp)
    prefetched = min(profile.live_unsharded_blocks, sum(chunk.num_layers for chunk in shape.chunks))

    freed = columns.frees_after_forward
    freed_in_backward = freed & ~columns.keeps_gradients
    forward = np.where(freed, root + block, everything) * copied_bytes
    start = np.where(freed, root + prefetched * block, everything) * copied_bytes
    end = np.where(freed_in_backward, root + block, everything) * copied_bytes

    kept = np.where(columns.keeps_gradients, everything * reduced_bytes, 0.0)
    waiting = np.where(held.accumulating, kept, 0.0)
    passing = block * (used_bytes + reduced_bytes)
    reducing_root = root * (used_bytes + reduced_bytes)
    at_end = np.where(
        columns.keeps_gradients, kept + block * reduced_bytes, np.maximum(passing, reducing_root)
    )
    on = columns.through_fsdp
    return _AtMoments(
        loss=np.where(on, forward + waiting, 0.0),
        backward_start=np.where(on, start + waiting + head * used_bytes + passing, 0.0),
        backward_end=np.where(on, end + at_end, 0.0),
    )


def _in_buckets(group: LayoutGroup) -> NDArray[np.bool_]:
    """Whether gradients are views of DDP's buckets, which are never freed."""
    return _uses_ddp(group) & group.profile.gradients_live_in_buckets


def _uses_ddp(group: LayoutGroup) -> NDArray[np.bool_]:
    columns = group.columns
    return ~columns.through_fsdp & (columns.replicas * columns.state_shard > 1)


def _standing_buffers(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """DDP's buckets where they are a copy, and receive buffers for every micro-batch."""
    columns, profile = group.columns, group.profile
    buffers = np.zeros(len(columns))
    if not profile.gradients_live_in_buckets:
        gradients = on_rank(rank_parameters(shape, group.model), columns.tp)
        copied = gradients * group.training.precision.gradient_bytes
        buffers += np.where(_uses_ddp(group), copied, 0.0)
    if profile.pipeline_buffers and group.pipeline.pp > 1:
        received = sum((not c.has_embedding) + (not c.has_head) for c in shape.chunks)
        buffers += received * columns.micro_batches * _boundary(group)
    return buffers


def _boundary(group: LayoutGroup) -> FloatArray:
    """Hidden states of one micro-batch as stages exchange them."""
    hidden_bytes = group.model.hidden_size * group.numerics.residual_bytes
    return BytesPerToken(sequence=hidden_bytes).on_rank(group.columns)


@dataclass(frozen=True, kw_only=True)
class _Activations:
    kept: FloatArray
    """Of all micro-batches in flight."""
    live: FloatArray
    """Of the layer that is being recomputed."""
    end: FloatArray
    """When backward of the first micro-batch reaches the last layer it has to pass."""


def _activations(shape: RankShape, group: LayoutGroup, held: InFlight) -> _Activations:
    columns = group.columns
    per_micro_batch = [_chunk_activations(chunk, group) for chunk in shape.chunks]
    kept = sum(
        count * bytes_ for count, bytes_ in zip(held.per_chunk, per_micro_batch, strict=True)
    )
    one_layer = _largest_layer(shape, group).on_rank(columns)
    live = np.where(columns.recompute, one_layer, 0.0)
    copies = _autocast_weights(shape, group)
    return _Activations(
        kept=kept + copies, live=live, end=kept - per_micro_batch[0] + one_layer + copies
    )


def _chunk_activations(chunk: Chunk, group: LayoutGroup) -> FloatArray:
    """Kept for one micro-batch on one virtual stage.

    A stage's output is kept until its gradient arrives. Its input is the receive buffer, so the
    first norm (where it computes in the type that arrives) or checkpoint keeps nothing new.
    """
    model, numerics, columns = group.model, group.numerics, group.columns
    saved, checkpoints = BytesPerToken(), BytesPerToken()
    for layer, count in chunk.layers:
        saved += total(layer_tensors(layer, model, numerics, group.profile)) * count
        checkpoints += total(checkpoint_tensors(model, numerics)) * count
    kept = np.where(columns.recompute, checkpoints.on_rank(columns), saved.on_rank(columns))
    if chunk.has_head:
        kept += total(head_tensors(model, numerics, group.profile)).on_rank(columns)
    elif group.pipeline.pp > 1:
        kept += _boundary(group)
    if group.pipeline.pp > 1 and not chunk.has_embedding and group.profile.pipeline_buffers:
        shared = columns.recompute | (numerics.residual_bytes == FP32_BYTES)
        kept -= np.where(shared, _boundary(group), 0.0)
    return np.asarray(kept)


def _largest_layer(shape: RankShape, group: LayoutGroup) -> BytesPerToken:
    each = [
        total(layer_tensors(kind, group.model, group.numerics, group.profile))
        for kind in _kinds(shape)
    ]
    return max(each, key=lambda b: b.tp + b.sequence + b.whole, default=BytesPerToken())


def _autocast_weights(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """Autocast keeps a copy in the compute type of every matmul's weight until backward."""
    if not group.numerics.is_autocast:
        return np.zeros(len(group))
    matmuls = blocks_parameters(shape, group.model).sharded
    matmuls += head_matrix(shape, group.model).sharded
    return np.asarray(matmuls / group.columns.tp * group.numerics.compute_bytes)


@dataclass(frozen=True, kw_only=True)
class _Logits:
    loss: FloatArray
    backward: FloatArray
    end: FloatArray


def _logits(shape: RankShape, group: LayoutGroup, held: InFlight) -> _Logits:
    """Around the loss, on the rank that has the head; zero elsewhere."""
    columns = group.columns
    if not shape.chunks[-1].has_head:
        zeros = np.zeros(len(columns))
        return _Logits(loss=zeros, backward=zeros, end=zeros)
    entries = columns.tokens * float(group.model.vocab_size)
    if not group.profile.gathers_logits:
        entries = entries / columns.tp
    each: LossBytes = loss_bytes(group.training.precision)
    waiting = (held.per_chunk[-1] - 1) * each.kept
    return _Logits(
        loss=entries * (waiting + each.kept + max(each.forward, each.backward)),
        backward=entries * (waiting + group.training.precision.compute_bytes),
        end=entries * waiting,
    )


def _temporaries(shape: RankShape, group: LayoutGroup, held: InFlight) -> FloatArray:
    """Gradients of activations while backward passes one layer.

    A gradient that is added to one of an earlier micro-batch exists beside it for a moment; the
    largest is that of a vocabulary matrix.
    """
    columns, model = group.columns, group.model
    passing = np.zeros(len(columns))
    for kind in _kinds(shape):
        one = backward_bytes(kind, model, group.numerics).on_rank(columns)
        passing = np.maximum(passing, one)
    added = (held.accumulating | _in_buckets(group)) & ~columns.through_fsdp
    largest = _largest_matrix(shape, model) / columns.tp
    gradient_bytes = group.training.precision.gradient_bytes
    return np.asarray(passing + np.where(added, largest * gradient_bytes, 0.0))


def _optimizer_temporaries(group: LayoutGroup, states: _States) -> FloatArray:
    """What the optimizer's step makes and frees, in units of one moment of all parameters."""
    moments = OPTIMIZER_MOMENTS[group.training.optimizer]
    if moments == 0:
        return np.zeros(len(group))
    return states.optimizer / moments * group.profile.optimizer_temporary_moments


def _kinds(shape: RankShape) -> set[LayerSpec]:
    return {layer for chunk in shape.chunks for layer, _ in chunk.layers}


def _largest_block(shape: RankShape, model: ModelSpec) -> ParameterSplit:
    each = [layer_parameters(kind, model) for kind in _kinds(shape)]
    return max(each, key=lambda split: split.total, default=ParameterSplit(sharded=0))


def _largest_matrix(shape: RankShape, model: ModelSpec) -> int:
    """Elements of the largest weight on this rank, undivided."""
    sizes = [model.hidden_size * kind.mlp.intermediate_size for kind in _kinds(shape)]
    if shape.chunks[0].has_embedding or shape.chunks[-1].has_head:
        sizes.append(model.vocab_size * model.hidden_size)
    return max(sizes, default=0)
