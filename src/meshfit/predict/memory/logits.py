"""Logits, loss, and the head's gradient."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.activations import loss_bytes
from meshfit.predict.memory.moments import MOMENTS, Moments
from meshfit.predict.memory.states import in_buckets
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import ends_held
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.predict.shape.schedule import InFlight, RankShape
from meshfit.workload.counts import head_tensors
from meshfit.workload.training import LossKind

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LOSS_CHUNKS = 8
"""Parts into which chunked losses cut a micro-batch (torchtune's ``CEWithChunkedOutputLoss``)."""


def loss_kind(group: LayoutGroup) -> LossKind:
    """As the job says, or as the engine does it."""
    return group.training.runtime.loss or group.profile.loss


def logit_entries(group: LayoutGroup) -> FloatArray:
    """Logits of one micro-batch on one rank."""
    columns = group.columns
    entries = columns.tokens * float(group.model.vocab_size)
    if not group.profile.gathers_logits:
        entries = entries / columns.tp
    return entries / LOSS_CHUNKS if loss_kind(group) == "chunked" else entries


def logit_moments(shape: RankShape, group: LayoutGroup, held: InFlight) -> Moments:
    """Around the loss, on the rank that has the head; zero elsewhere.

    A pipeline holds logits, as a stage's output, until their backward; a plain loop drops them
    once the log-probabilities are there. Gathered over tp they exist twice for a moment, beside the
    shard they came from; where no FSDP2 hook waits for that gather, the result stays until backward
    (measured; torch 2.13's asynchronous collectives). Over divided logits (``loss_parallel``,
    ``torch/distributed/tensor/parallel/loss.py``) both passes of a plain loss make one fp32 tensor
    more. A soft cap keeps one tensor more.
    """
    columns, nothing = group.columns, np.zeros(len(group))
    if not shape.chunks[-1].has_head:
        return Moments(**dict.fromkeys(MOMENTS, nothing))
    kind = loss_kind(group)
    element = group.training.precision.compute_bytes
    entries = logit_entries(group)
    loss = loss_bytes(group.training.precision, kind)
    gathers = group.profile.gathers_logits & (columns.tp > 1)
    divides = (columns.tp > 1) & ~gathers
    more = np.where(divides & (kind == "plain"), FP32_BYTES, 0)
    unwaited = gathers & ~columns.through_fsdp
    holds_logits = (unwaited | (group.pipeline.pp > 1) | (kind == "fused")) & (kind != "chunked")
    capped = element if group.model.config.get("final_logit_softcapping") else 0
    held_bytes = np.where(holds_logits, element, 0) + capped
    gathering = np.where(gathers, 1 + 1 / columns.tp, 0.0)
    kept = np.where(kind == "chunked", 0.0, loss.kept + held_bytes)
    making = loss.forward + more + np.where(holds_logits, 0, element)
    waiting = entries * np.maximum(0, held.per_chunk[-1] - 1) * kept
    at_loss = loss.kept + held_bytes + np.maximum(making, loss.backward + more)
    head_gradient = _head_gradient(shape, group)
    fresh = np.where(_head_gradient_waits(group, held), 0.0, head_gradient)
    return Moments(
        forward_end=waiting,
        head=waiting + entries * (element * (1 + gathering) + capped),
        loss=waiting + entries * at_loss,
        head_backward=waiting + entries * (element + held_bytes) + head_gradient,
        backward_start=waiting + fresh,
        layer_passed=waiting + fresh,
        backward_end=waiting,
        optimizer=nothing,
    )


def _head_gradient(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """Of the matrix that makes the logits, tied or not; none where it is frozen."""
    columns, training = group.columns, group.training
    if not ends_held(shape, group.model, training.adapter).trained.total:
        return np.zeros(len(group))
    precision = training.precision
    element = np.where(columns.through_fsdp, precision.compute_bytes, precision.gradient_bytes)
    matrix = head_tensors(group.model)[0].elements
    return np.asarray(matrix / columns.tp * element)


def _head_gradient_waits(group: LayoutGroup, held: InFlight) -> BoolArray:
    """Whether a whole gradient, to which the head's is added, is counted elsewhere."""
    columns = group.columns
    whole_waits = held.accumulating & (columns.keeps_gradients | ~columns.through_fsdp)
    return whole_waits | in_buckets(group)
