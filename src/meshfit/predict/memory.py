"""Peak memory of one pipeline rank by category, for all layouts that share its pipeline.

Categories are those of ``meshfit.breakdown.MemoryBreakdown``, filled the way ``meshfit.measure``
fills them:

- ``parameters``, ``gradients``, ``optimizer``: what the rank holds between steps, its own shards.
- ``activations``: what autograd keeps (``activations.layer_tensors``) for the micro-batches in
  flight, the layer being recomputed, and autocast's copies of weights.
- ``logits_and_loss``: logits, log-probabilities and their gradients, and the head's gradient of
  the micro-batch at hand.
- ``communication``: gathered parameters and whole gradients under FSDP2's hooks, gather and
  scatter buffers, pipeline receive buffers.
- ``temporary``: gradients of activations in backward, gradients that DDP has not yet taken into
  its buckets, temporaries of the optimizer.

The peak is the largest of seven moments, all of one micro-batch while the schedule has most in
flight. ``head``: the logits are made. ``loss``: gradients of the logits. ``head_backward``: the
head's gradient. ``backward_start``: inside the last layer. ``layer_passed``: its gradients are whole and about to be reduced. ``backward_end``:
inside the first layer, with all gradients. ``optimizer``: states and the step's temporaries.
Between the last two of backward memory changes linearly with the layers passed.

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
    backward_bytes,
    checkpoint_tensors,
    head_tensors,
    layer_tensors,
    loss_bytes,
    total,
)
from meshfit.predict.group import LayoutGroup
from meshfit.predict.parameters import (
    ends_parameters,
    head_matrix,
    layer_parameters,
    on_rank,
    rank_parameters,
)
from meshfit.predict.schedule import Chunk, InFlight, RankShape, in_flight
from meshfit.workload.counts import ParameterSplit, embedding_parameters
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.training import OPTIMIZER_MOMENTS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MOMENTS: tuple[str, ...] = (
    "head",
    "loss",
    "head_backward",
    "backward_start",
    "layer_passed",
    "backward_end",
    "optimizer",
)


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Bytes at the peak: one array of shape [N] a category, and which moment it is."""

    categories: Mapping[str, FloatArray]
    moment: IntArray

    @property
    def allocated(self) -> FloatArray:
        return np.asarray(sum(self.categories.values()))


@dataclass(frozen=True, kw_only=True)
class _Moments:
    """Bytes of one category at every moment of ``MOMENTS``."""

    head: FloatArray
    loss: FloatArray
    head_backward: FloatArray
    backward_start: FloatArray
    layer_passed: FloatArray
    backward_end: FloatArray
    optimizer: FloatArray

    def stacked(self) -> FloatArray:
        """[moments, N]."""
        return np.stack([getattr(self, name) for name in MOMENTS])


def rank_memory(shape: RankShape, group: LayoutGroup) -> RankMemory:
    """Memory of one pipeline rank at its peak, for every layout of ``group``."""
    held = in_flight(group.pipeline, shape.rank, group.columns.micro_batches)
    states = state_bytes(shape, group)
    at = {
        "gradients": _gradients(group, held, states),
        "activations": _activations(shape, group, held),
        "logits_and_loss": _logits(shape, group, held),
        "communication": _communication(shape, group, held, states),
        "temporary": _temporary(shape, group, held, states),
    }
    by_category = {name: moments.stacked() for name, moments in at.items()}
    moment = np.argmax(sum(by_category.values()), axis=0)
    peak = {name: np.choose(moment, values) for name, values in by_category.items()}
    peak |= {"parameters": states.parameters, "optimizer": states.optimizer}
    nothing = np.zeros(len(group))
    return RankMemory(
        categories={name: peak.get(name, nothing) for name in MEMORY_CATEGORIES}, moment=moment
    )


# States


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """What a rank holds between steps, for every layout, in bytes."""

    parameters: FloatArray
    gradients: FloatArray
    optimizer: FloatArray


def state_bytes(shape: RankShape, group: LayoutGroup) -> StateBytes:
    """Model states of one rank: parameters over tp, then over the group that shards them.

    ``N / tp * (parameter / D23 + gradient / D23 + moments / D123)``, with D the ranks over which
    the ZeRO stages named divide (1910.02054, section 5). Padding of shards is ignored.
    """
    columns, precision = group.columns, group.training.precision
    held = on_rank(rank_parameters(shape, group.model), columns.tp)
    sharded = held / np.where(columns.shards_parameters, columns.state_shard, 1)
    stepped = held / np.where(columns.shards_optimizer, columns.state_shard, 1)
    moments = OPTIMIZER_MOMENTS[group.training.optimizer]
    return StateBytes(
        parameters=sharded * precision.parameter_bytes,
        gradients=sharded * precision.gradient_bytes,
        optimizer=stepped * moments * precision.moment_bytes,
    )


def _uses_ddp(group: LayoutGroup) -> BoolArray:
    columns = group.columns
    return ~columns.through_fsdp & (columns.replicas * columns.state_shard > 1)


def _in_buckets(group: LayoutGroup) -> BoolArray:
    """Whether gradients are views of DDP's buckets, which are never freed."""
    return _uses_ddp(group) & group.profile.gradients_live_in_buckets


def _gradients(group: LayoutGroup, held: InFlight, states: StateBytes) -> _Moments:
    """Gradients as the optimizer will see them.

    They wait through a micro-batch where an earlier one has made them. Until the last micro-batch
    FSDP2's hooks hold whole gradients, and those of hybrid sharding that are not yet summed over
    replicas, elsewhere (see ``_communication``).
    """
    columns = group.columns
    elsewhere = columns.keeps_gradients | _waits_for_replicas(group)
    waiting = np.where((held.accumulating & ~elsewhere) | _in_buckets(group), states.gradients, 0.0)
    end = np.where(elsewhere, 0.0, states.gradients)
    return _Moments(
        head=waiting,
        loss=waiting,
        head_backward=waiting,
        backward_start=waiting,
        layer_passed=waiting,
        backward_end=end,
        optimizer=states.gradients,
    )


def _waits_for_replicas(group: LayoutGroup) -> BoolArray:
    """Whether shards of gradients wait for the sum over replicas that ends the step."""
    columns = group.columns
    hybrid = columns.shards_parameters & (columns.replicas > 1)
    return hybrid & (columns.micro_batches > 1) & ~columns.keeps_gradients


# Activations


def _activations(shape: RankShape, group: LayoutGroup, held: InFlight) -> _Moments:
    """What autograd keeps. In the last layer's backward the head's part is gone, and the input of
    the layer's last matmul, while a recomputed layer is there in full."""
    columns = group.columns
    each = [_chunk_activations(chunk, group) for chunk in shape.chunks]
    kept = sum(
        (count * bytes_ for count, bytes_ in zip(held.per_chunk, each, strict=True)),
        start=_sent_activations(shape, group),
    )
    head = np.zeros(len(group))
    if shape.chunks[-1].has_head:
        head = total(head_tensors(group.model, group.numerics, group.profile)).on_rank(columns)
    layer = _largest_layer(shape, group).on_rank(columns)
    last_input = _last_matmul_input(shape, group).on_rank(columns)
    recomputed = np.where(columns.recompute, layer - _shared_input(group), 0.0)
    one_layer = np.where(columns.recompute, _boundary(group), layer)
    cached = np.where(columns.recompute, _layer_weight_copies(shape.chunks[-1], group), 0.0)
    return _Moments(
        head=kept + cached,
        loss=kept,
        head_backward=kept,
        backward_start=kept - head + recomputed - last_input,
        layer_passed=kept - head - one_layer,
        backward_end=kept - each[0] + layer - last_input,
        optimizer=np.zeros(len(group)),
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
    kept += np.where(columns.recompute, 0.0, _layer_weight_copies(chunk, group))
    if chunk.has_head:
        kept += total(head_tensors(model, numerics, group.profile)).on_rank(columns)
        kept += _weight_copies(embedding_parameters(model), group)
    elif group.pipeline.pp > 1 and not _keeps_sent(group):
        kept += _boundary(group)
    if group.pipeline.pp > 1 and not chunk.has_embedding and group.profile.pipeline_buffers:
        kept -= np.where(columns.recompute, _boundary(group), _shared_input(group))
    return np.asarray(kept)


def _keeps_sent(group: LayoutGroup) -> bool:
    """Whether what a stage has sent is held until the end of the step."""
    return group.pipeline.vpp > 1 and group.profile.interleaving_keeps_sent


def _sent_activations(shape: RankShape, group: LayoutGroup) -> FloatArray:
    if not _keeps_sent(group):
        return np.zeros(len(group))
    sending = sum(not chunk.has_head for chunk in shape.chunks)
    return sending * group.columns.micro_batches * _boundary(group)


def _boundary(group: LayoutGroup) -> FloatArray:
    """Hidden states of one micro-batch as layers, and stages, hand them on."""
    hidden_bytes = group.model.hidden_size * group.numerics.residual_bytes
    return BytesPerToken(sequence=hidden_bytes).on_rank(group.columns)


def _shared_input(group: LayoutGroup) -> FloatArray:
    """What a layer's first norm keeps of an input that is kept anyway: in fp32 the same tensor."""
    is_same = group.numerics.residual_bytes == FP32_BYTES
    return _boundary(group) if is_same else np.zeros(len(group))


def _largest_layer(shape: RankShape, group: LayoutGroup) -> BytesPerToken:
    each = [
        total(layer_tensors(kind, group.model, group.numerics, group.profile))
        for kind in _kinds(shape)
    ]
    return max(each, key=lambda b: b.tp + b.sequence + b.whole, default=BytesPerToken())


def _last_matmul_input(shape: RankShape, group: LayoutGroup) -> BytesPerToken:
    widths = [kind.mlp.intermediate_size for kind in _kinds(shape)]
    return BytesPerToken(tp=float(group.numerics.compute_bytes * max(widths, default=0)))


def _layer_weight_copies(chunk: Chunk, group: LayoutGroup) -> FloatArray:
    sharded = sum(layer_parameters(kind, group.model).sharded * n for kind, n in chunk.layers)
    return _weight_copies(sharded, group)


def _weight_copies(parameters: int, group: LayoutGroup) -> FloatArray:
    """Copies that autocast makes of matmul weights in the compute type.

    Each forward makes its own, shared by the operations in it; autograd keeps them to its backward.
    """
    if not group.numerics.is_autocast:
        return np.zeros(len(group))
    return np.asarray(parameters / group.columns.tp * group.numerics.compute_bytes)


# Logits and loss


def _logits(shape: RankShape, group: LayoutGroup, held: InFlight) -> _Moments:
    """Around the loss, on the rank that has the head; zero elsewhere.

    A pipeline holds logits, as a stage's output, until their backward; a plain loop drops them
    once the log-probabilities are there. Gathered over tp they exist twice for a moment, beside the
    shard they came from; where no FSDP2 hook waits for that gather, the result stays until backward
    (measured; torch 2.13's asynchronous collectives).
    """
    columns, nothing = group.columns, np.zeros(len(group))
    if not shape.chunks[-1].has_head:
        return _Moments(**dict.fromkeys(MOMENTS, nothing))
    element = group.training.precision.compute_bytes
    entries = columns.tokens * float(group.model.vocab_size)
    if not group.profile.gathers_logits:
        entries = entries / columns.tp
    loss = loss_bytes(group.training.precision)
    split = np.where(group.profile.gathers_logits & (columns.tp > 1), columns.tp, np.inf)
    unwaited = np.isfinite(split) & ~columns.through_fsdp
    holds_logits = unwaited | (group.pipeline.pp > 1)
    held_bytes = np.where(holds_logits, element, 0)
    gathering = np.where(np.isfinite(split), 1 + 1 / split, 0.0)
    kept = loss.kept + held_bytes
    making = loss.forward + np.where(holds_logits, 0, element)
    waiting = entries * (held.per_chunk[-1] - 1) * kept
    head_gradient = _head_gradient(shape, group)
    fresh = np.where(_head_gradient_waits(group, held), 0.0, head_gradient)
    return _Moments(
        head=waiting + entries * element * (1 + gathering),
        loss=waiting + entries * (kept + np.maximum(making, loss.backward)),
        head_backward=waiting + entries * (element + held_bytes) + head_gradient,
        backward_start=waiting + fresh,
        layer_passed=waiting + fresh,
        backward_end=waiting,
        optimizer=nothing,
    )


def _head_gradient(shape: RankShape, group: LayoutGroup) -> FloatArray:
    columns, precision = group.columns, group.training.precision
    element = np.where(columns.through_fsdp, precision.compute_bytes, precision.gradient_bytes)
    return on_rank(head_matrix(shape, group.model), columns.tp) * element


def _head_gradient_waits(group: LayoutGroup, held: InFlight) -> BoolArray:
    """Whether a whole gradient, to which the head's is added, is counted elsewhere."""
    columns = group.columns
    whole_waits = held.accumulating & (columns.keeps_gradients | ~columns.through_fsdp)
    return whole_waits | _in_buckets(group)


# Communication


def _communication(
    shape: RankShape, group: LayoutGroup, held: InFlight, states: StateBytes
) -> _Moments:
    """Gathered parameters, whole gradients and buffers.

    Under FSDP2's hooks each layer is a unit; embedding, final norm and head form the root unit. A
    unit is gathered for its forward and again (stage 3) for its backward, ``live_unsharded_blocks``
    ahead; the root then stays to the end. The input of the last scatter lives until the next one.
    """
    columns, precision = group.columns, group.training.precision
    model, tp = group.model, columns.tp
    used, reduced = precision.compute_bytes, precision.gradient_bytes
    root = on_rank(ends_parameters(shape, model), tp)
    block = on_rank(_largest_block(shape, model), tp)
    everything = on_rank(rank_parameters(shape, model), tp)
    ahead = min(group.profile.live_unsharded_blocks, sum(c.num_layers for c in shape.chunks))

    freed = columns.frees_after_forward
    kept = np.where(columns.keeps_gradients, everything * reduced, 0.0)
    partial = np.where(_waits_for_replicas(group), states.gradients, 0.0)
    last_scatter = np.where(columns.shards_parameters & ~columns.keeps_gradients, root, 0) * reduced
    waiting = np.where(held.accumulating, kept + partial + last_scatter, 0.0)
    matrix = _largest_layer_matrix(shape) / tp * model.hidden_size * used
    whole_block = np.where(columns.keeps_gradients, 0.0, block * (used + reduced))
    reducing = np.maximum(root, block) * (used + reduced)

    at = {
        "head": np.where(freed, root + block, everything + block) * used + waiting,
        "loss": np.where(freed, 0.0, everything) * used + waiting,
        "head_backward": np.where(freed, root + block, everything) * used + waiting,
        "backward_start": np.where(freed, root + ahead * block, everything) * used
        + waiting
        + matrix,
        "layer_passed": np.where(freed, root + ahead * block, everything) * used
        + waiting
        + whole_block,
        "backward_end": np.where(freed & ~columns.keeps_gradients, root + block, everything) * used
        + np.where(columns.keeps_gradients, kept + block * reduced, reducing)
        + partial,
        "optimizer": np.zeros(len(group)),
    }
    standing = _standing_buffers(shape, group)
    return _Moments(
        **{name: standing + np.where(columns.through_fsdp, b, 0.0) for name, b in at.items()}
    )


def _standing_buffers(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """DDP's buckets where they are a copy, and receive buffers for every micro-batch."""
    columns, profile = group.columns, group.profile
    buffers = np.zeros(len(group))
    if not profile.gradients_live_in_buckets:
        gradients = on_rank(rank_parameters(shape, group.model), columns.tp)
        copied = gradients * group.training.precision.gradient_bytes
        buffers += np.where(_uses_ddp(group), copied, 0.0)
    if profile.pipeline_buffers and group.pipeline.pp > 1:
        received = sum((not c.has_embedding) + (not c.has_head) for c in shape.chunks)
        buffers += received * columns.micro_batches * _boundary(group)
    return buffers


# Temporaries


def _temporary(
    shape: RankShape, group: LayoutGroup, held: InFlight, states: StateBytes
) -> _Moments:
    """Gradients of activations, of a weight before it is added to another, and gradients that DDP
    takes into its buckets only with the last micro-batch; sent gradients that are held."""
    columns, precision = group.columns, group.training.precision
    passing = np.zeros(len(group))
    for kind in _kinds(shape):
        one = backward_bytes(kind, group.model, group.numerics).on_rank(columns)
        passing = np.maximum(passing, one)
    matrix = _largest_layer_matrix(shape) / columns.tp * group.model.hidden_size
    added = np.where(columns.through_fsdp, 0.0, matrix * precision.gradient_bytes)
    outside = np.where(_in_buckets(group) & held.accumulating, states.gradients, 0.0)
    waiting = outside + _sent_gradients(shape, group)
    return _Moments(
        head=waiting,
        loss=waiting,
        head_backward=waiting + _boundary(group),
        backward_start=waiting + passing + added,
        layer_passed=waiting + _boundary(group) + added,
        backward_end=passing + added + _sent_gradients(shape, group),
        optimizer=_optimizer_temporaries(group, states),
    )


def _sent_gradients(shape: RankShape, group: LayoutGroup) -> FloatArray:
    if not _keeps_sent(group):
        return np.zeros(len(group))
    sending = sum(not chunk.has_embedding for chunk in shape.chunks)
    return sending * group.columns.micro_batches * _boundary(group)


def _optimizer_temporaries(group: LayoutGroup, states: StateBytes) -> FloatArray:
    """What the optimizer's step makes and frees, in units of one moment of all parameters."""
    moments = OPTIMIZER_MOMENTS[group.training.optimizer]
    if moments == 0:
        return np.zeros(len(group))
    return states.optimizer / moments * group.profile.optimizer_temporary_moments


# What a rank holds


def _kinds(shape: RankShape) -> set[LayerSpec]:
    return {layer for chunk in shape.chunks for layer, _ in chunk.layers}


def _largest_block(shape: RankShape, model: ModelSpec) -> ParameterSplit:
    each = [layer_parameters(kind, model) for kind in _kinds(shape)]
    return max(each, key=lambda split: split.total, default=ParameterSplit(sharded=0))


def _largest_layer_matrix(shape: RankShape) -> int:
    """Rows (of the hidden size) of the MLP's matrices."""
    return max((kind.mlp.intermediate_size for kind in _kinds(shape)), default=0)
