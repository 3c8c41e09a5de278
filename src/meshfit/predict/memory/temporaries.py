"""What one step makes and frees beside what autograd keeps."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.activations import layer_bytes, unkept
from meshfit.predict.memory.blocks import block_memory
from meshfit.predict.memory.kept import boundary, keeps_sent, kinds_of
from meshfit.predict.memory.matrices import largest_matrix
from meshfit.predict.memory.moments import Moments
from meshfit.predict.memory.states import StateBytes, in_buckets
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.saved import BytesPerToken
from meshfit.predict.shape.schedule import InFlight, RankShape
from meshfit.workload.model import MlpSpec
from meshfit.workload.training import OPTIMIZER_MOMENTS

FloatArray = NDArray[np.float64]

FP8_COPIES = 2
"""Copies of a weight in fp8 that a matmul's two backward products take: as it lies, and turned."""


def temporary_moments(
    shape: RankShape, group: LayoutGroup, held: InFlight, states: StateBytes
) -> Moments:
    """Gradients of activations, of a weight before it is added to another, and gradients that DDP
    takes into its buckets only with the last micro-batch; sent gradients that are held; copies of
    one matrix in fp8, or unpacked from the few bits in which it is stored."""
    columns, precision = group.columns, group.training.precision
    passing = np.zeros(len(group))
    for kind in kinds_of(shape):
        one = layer_bytes(kind, group.layer_basis).gradients.on_rank(columns)
        passing = np.maximum(passing, one)
    added = np.where(
        columns.through_fsdp, 0.0, largest_matrix(shape, group) * precision.gradient_bytes
    )
    outside = np.where(in_buckets(group) & held.accumulating, states.gradients, 0.0)
    waiting = outside + _sent_gradients(shape, group)
    copied = _matrix_copies(shape, group)
    return Moments(
        forward_end=waiting + _last_output(shape, group),
        head=waiting,
        loss=waiting,
        head_backward=waiting + boundary(group),
        backward_start=waiting + passing + added + copied,
        layer_passed=waiting + boundary(group) + added,
        backward_end=passing + added + copied + _sent_gradients(shape, group),
        optimizer=_optimizer_temporaries(group, states),
    )


def _last_output(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """What the last layer's forward holds when its MLP has made its output, beyond what is kept.

    Tensor-parallel ranks then have summands of the whole sequence, and them once more as the sum over
    ranks takes or gives them; under sequence parallelism beside a share of the sequence, before and
    behind the MLP. Frozen weights keep neither what was gathered for them nor their product's factor.
    """
    columns, basis = group.columns, group.layer_basis
    summands = BytesPerToken(whole=float(basis.compute_bytes * basis.hidden_size))
    shares = np.where(columns.sequence_split > 1, 2 * boundary(group), 0.0)
    around = summands.on_rank(columns) * np.where(columns.tp > 1, 2, 1) + shares
    largest = np.zeros(len(group))
    for kind in kinds_of(shape):
        _, last = kind.blocks[-1]
        if isinstance(last, MlpSpec):
            passing = unkept(block_memory(last, basis).saved, basis).on_rank(columns)
            largest = np.maximum(largest, around + passing)
    return largest


def _matrix_copies(shape: RankShape, group: LayoutGroup) -> FloatArray:
    training = group.training
    if training.precision.matmul == "fp8":
        return largest_matrix(shape, group) * FP8_COPIES
    if training.adapter is not None and training.adapter.base_bits is not None:
        return largest_matrix(shape, group, frozen=True) * training.precision.compute_bytes
    return np.zeros(len(group))


def _sent_gradients(shape: RankShape, group: LayoutGroup) -> FloatArray:
    if not keeps_sent(group):
        return np.zeros(len(group))
    sending = sum(not chunk.has_embedding for chunk in shape.chunks)
    return sending * group.columns.micro_batches * boundary(group)


def _optimizer_temporaries(group: LayoutGroup, states: StateBytes) -> FloatArray:
    """What the optimizer's step makes and frees, in units of one moment of all parameters."""
    moments = OPTIMIZER_MOMENTS[group.training.optimizer]
    if moments == 0:
        return np.zeros(len(group))
    return states.optimizer / moments * group.profile.optimizer_temporary_moments
