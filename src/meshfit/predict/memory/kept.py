"""What autograd keeps on one rank, for the micro-batches in flight and by recomputation policy."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import RECOMPUTE
from meshfit.predict.memory.activations import (
    LayerBytes,
    checkpoint_tensors,
    head_tensors,
    layer_bytes,
)
from meshfit.predict.memory.moments import Moments
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import layer_held
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.predict.shape.saved import BytesPerToken, total
from meshfit.predict.shape.schedule import Chunk, InFlight, RankShape
from meshfit.workload.counts import embedding_parameters
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]

_SELECTIVE, _OPERATIONS, _ALTERNATE, _BLOCK, _FULL = (
    RECOMPUTE.index(name) for name in ("selective", "operations", "alternate", "block", "full")
)


LAYERS_ON_DEVICE = 2
"""Layers whose activations are there while the others' are offloaded: the one that computes and the
one that is being copied (torchtune's ``OffloadActivations``, two streams)."""


def activation_moments(shape: RankShape, group: LayoutGroup, held: InFlight) -> Moments:
    """What autograd keeps. In the last layer's backward the head's part is gone, and the input of
    the layer's last matmul, while a recomputed layer is there in full."""
    of_chunk = {
        chunk: _chunk_activations(chunk, group) - _offloaded(chunk, group)
        for chunk in dict.fromkeys(shape.chunks)
    }
    each = [of_chunk[chunk] for chunk in shape.chunks]
    kept = sum(
        (count * bytes_ for count, bytes_ in zip(held.kept, each, strict=True)),
        start=_sent_activations(shape, group),
    )
    head = np.zeros(len(group))
    if shape.chunks[-1].has_head:
        head = total(head_tensors(group.layer_basis)).on_rank(group.columns)
    live = _LiveLayer(shape, group)
    cached = _layer_weight_copies(shape.chunks[-1], group) * _full_share(shape.chunks[-1], group)
    return Moments(
        forward_end=kept - head + cached,
        head=kept + cached,
        loss=kept,
        head_backward=kept,
        backward_start=kept - head + live.recomputed - live.last_input,
        layer_passed=kept - head - live.kept,
        backward_end=kept - each[0] + live.whole - live.last_input,
        optimizer=np.zeros(len(group)),
    )


class _LiveLayer:
    """The layer that backward is in, the largest of a rank: what forward kept of it (``kept``),
    what recomputation adds to that (``recomputed``), and ``whole`` as it then is there."""

    def __init__(self, shape: RankShape, group: LayoutGroup) -> None:
        kinds = kinds_of(shape)
        basis, columns = group.layer_basis, group.columns
        layers = [layer_bytes(kind, basis) for kind in kinds]
        largest = max(layers, key=lambda one: one.saved.undivided)
        one = largest.saved.on_rank(columns)
        in_full = _full_share(shape.chunks[-1], group) > 0
        together = np.where(columns.policy == _FULL, columns.recompute_layers, 1)
        self.last_input = _largest([one.last_input for one in layers]).on_rank(columns)
        self.whole = one * np.where(in_full, together, 1)
        self.kept = np.where(in_full, boundary(group), _by_policy(largest, group))
        self.recomputed = np.where(
            in_full,
            self.whole - _shared_input(group),
            _by_policy(
                largest,
                group,
                none=lambda _: BytesPerToken(),
                selective=lambda layer: layer.saved + layer.without_core * -1,
                operations=lambda layer: layer.operations_again,
            ),
        )


def _largest(sizes: list[BytesPerToken]) -> BytesPerToken:
    return max(sizes, key=lambda one: one.undivided, default=BytesPerToken())


def _by_policy(
    layer: LayerBytes,
    group: LayoutGroup,
    *,
    none: Callable[[LayerBytes], BytesPerToken] = lambda layer: layer.saved,
    selective: Callable[[LayerBytes], BytesPerToken] = lambda layer: layer.without_core,
    operations: Callable[[LayerBytes], BytesPerToken] = lambda layer: layer.operations,
) -> FloatArray:
    """Bytes of one layer that is not recomputed in full, by each layout's policy."""
    policy, columns = group.columns.policy, group.columns
    found = none(layer).on_rank(columns)
    for code, rule in ((_SELECTIVE, selective), (_OPERATIONS, operations)):
        if (policy == code).any():
            found = np.where(policy == code, rule(layer).on_rank(columns), found)
    return found


def _full_share(chunk: Chunk, group: LayoutGroup) -> FloatArray:
    """Share of a virtual stage's layers that are recomputed in full."""
    columns, layers = group.columns, max(1, chunk.num_layers)
    number = np.maximum(1, columns.recompute_layers)
    full = np.select(
        [columns.policy == _FULL, columns.policy == _ALTERNATE, columns.policy == _BLOCK],
        [layers, layers // number, np.minimum(layers, number)],
        0,
    )
    return np.asarray(full / layers)


def _checkpoint_share(chunk: Chunk, group: LayoutGroup, full: FloatArray) -> FloatArray:
    """Checkpoints a layer: several layers may share one under the full policy."""
    columns, layers = group.columns, max(1, chunk.num_layers)
    number = np.maximum(1, columns.recompute_layers)
    return np.where(columns.policy == _FULL, np.ceil(layers / number) / layers, full)


def _chunk_activations(chunk: Chunk, group: LayoutGroup) -> FloatArray:
    """Kept for one micro-batch on one virtual stage.

    A stage's output is kept until its gradient arrives. Its input is the receive buffer, so the
    first norm (where it computes in the type that arrives) or checkpoint keeps nothing new.
    """
    basis, columns = group.layer_basis, group.columns
    full = _full_share(chunk, group)
    saved = np.zeros(len(group))
    for layer, count in chunk.layers:
        saved += count * _by_policy(layer_bytes(layer, basis), group)
    checkpoint = total(checkpoint_tensors(basis)).on_rank(columns) * chunk.num_layers
    kept = saved * (1 - full) + checkpoint * _checkpoint_share(chunk, group, full)
    kept += (1 - full) * _layer_weight_copies(chunk, group)
    if chunk.has_head:
        kept += total(head_tensors(basis)).on_rank(columns)
        kept += weight_copies(embedding_parameters(group.model) / columns.tp, group)
    elif group.pipeline.pp > 1 and not keeps_sent(group):
        kept += boundary(group)
    if group.pipeline.pp > 1 and not chunk.has_embedding and group.profile.pipeline_buffers:
        kept -= np.where(full > 0, boundary(group), _shared_input(group))
    return np.asarray(kept)


def keeps_sent(group: LayoutGroup) -> bool:
    """Whether what a stage has sent is held until the end of the step."""
    return group.pipeline.vpp > 1 and group.profile.interleaving_keeps_sent


def offloaded_activations(shape: RankShape, group: LayoutGroup, held: InFlight) -> FloatArray:
    """Bytes of activations on the host while most micro-batches are in flight."""
    return np.asarray(
        sum(
            count * _offloaded(chunk, group)
            for count, chunk in zip(held.per_chunk, shape.chunks, strict=True)
        )
    )


def _offloaded(chunk: Chunk, group: LayoutGroup) -> FloatArray:
    """Of one micro-batch on one virtual stage; the head's part stays."""
    columns = group.columns
    if not columns.offloads_activations.any():
        return np.zeros(len(group))
    basis, layers = group.layer_basis, max(1, chunk.num_layers)
    whole = _chunk_activations(chunk, group)
    if chunk.has_head:
        whole = whole - total(head_tensors(basis)).on_rank(columns)
    away = whole * max(0, layers - LAYERS_ON_DEVICE) / layers
    return np.where(columns.offloads_activations, away, 0.0)


def _sent_activations(shape: RankShape, group: LayoutGroup) -> FloatArray:
    if not keeps_sent(group):
        return np.zeros(len(group))
    sending = sum(not chunk.has_head for chunk in shape.chunks)
    return sending * group.columns.micro_batches * boundary(group)


def boundary(group: LayoutGroup) -> FloatArray:
    """Hidden states of one micro-batch as layers, and stages, hand them on."""
    hidden_bytes = group.model.hidden_size * group.numerics.residual_bytes
    return BytesPerToken(sequence=hidden_bytes).on_rank(group.columns)


def _shared_input(group: LayoutGroup) -> FloatArray:
    """What a layer's first norm keeps of an input that is kept anyway: where it makes no copy, the
    same tensor."""
    basis = group.layer_basis
    copies = basis.norm_kernel != "fused" and not basis.layer_norm
    is_same = group.numerics.residual_bytes == FP32_BYTES or not copies
    return boundary(group) if is_same else np.zeros(len(group))


def _layer_weight_copies(chunk: Chunk, group: LayoutGroup) -> FloatArray:
    copies = np.zeros(len(group))
    if not group.numerics.is_autocast:
        return copies
    model, columns = group.model, group.columns
    for kind, count in chunk.layers:
        held = layer_held(kind, model.hidden_size, model.vectors_per_norm, None).trained
        cut = held.cut(columns) + held.experts / columns.expert_split
        copies += count * weight_copies(cut, group)
    return copies


def weight_copies(parameters: FloatArray, group: LayoutGroup) -> FloatArray:
    """Copies that autocast makes of matmul weights in the compute type.

    Each forward makes its own, shared by the operations in it; autograd keeps them to its backward.
    """
    if not group.numerics.is_autocast:
        return np.zeros(len(group))
    return np.asarray(parameters * group.numerics.compute_bytes)


def kinds_of(shape: RankShape) -> set[LayerSpec]:
    """The different layers on a rank."""
    return {layer for chunk in shape.chunks for layer, _ in chunk.layers}
