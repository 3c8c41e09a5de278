"""Seconds of computation: matmuls by shape, attention, and passes over memory."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.rates import Rates
from meshfit.predict.memory.logits import loss_kind
from meshfit.predict.shape.columns import step_columns
from meshfit.predict.shape.cut import cuts_mixers
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.pick import alike
from meshfit.predict.time.discarded import remade_bytes, up_projections
from meshfit.predict.time.documents import document_length, mixing_flops_per_token
from meshfit.predict.time.passes import (
    LOSS_BYTES,
    cast_bytes,
    experts_tp,
    is_fused,
    layer_passes,
)
from meshfit.predict.time.work import LayerWork, Matmul, ScanMixing, SoftmaxMixing, layer_work
from meshfit.workload.counts import attention_flops
from meshfit.workload.model import LayerSpec
from meshfit.workload.training import OPTIMIZER_MOMENTS, AttentionKernel, LossKind, TrainingSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SAVED_MATMULS = 0.5
"""PyTorch's recomputation by operation keeps the outputs of every second matmul and of attention."""
FLASH_BACKWARD = 2.5
"""Backward over forward FLOPs of flash attention: five matmuls to two (2307.08691, section 3.1)."""
SCAN_PASSES = (4, 8)
"""How often what is projected for a recurrence is read or written around it, forward and backward:
convolution, gate and norm."""
SCORE_PASSES = (3, 4)
"""How often unfused attention passes over all scores, forward and backward: each a matmul's write
or read, and softmax's read and write."""


@dataclass(frozen=True, kw_only=True)
class PartTime:
    """Seconds of one part (a layer, the head) for one micro-batch on one rank.

    Attributes:
        weight: what of ``backward`` only makes gradients of weights: zero-bubble schedules put it
            off, and collectives hide under it.
        mixing, mixing_backward: what of both passes is attention without its projections.
        matmuls: what of ``forward`` is matmuls with weights.
        last: what of it makes the layer's output, which backward does not read.
        operations: what of it ``recompute=operations`` runs again.
    """

    forward: FloatArray
    backward: FloatArray
    weight: FloatArray
    mixing: FloatArray
    mixing_backward: FloatArray
    matmuls: FloatArray
    last: FloatArray
    operations: FloatArray


def layer_time(layer: LayerSpec, group: LayoutGroup, rate: Rates) -> PartTime:
    """One layer: its matmuls, attention, and passes over what lies between them.

    A matmul's backward is two: ``[m, n] x [n, k]`` for its input, ``[n, m] x [m, k]`` for its
    weight. Nothing here depends on more than a few axes, so that each distinct shape is looked up
    once.
    """
    few, which = _distinct_shapes(group)
    return _for_each(_layer_time(layer, few, rate), which)


def _for_each(time: PartTime, which: IntArray) -> PartTime:
    return PartTime(**{name: part[which] for name, part in vars(time).items()})


def _distinct_shapes(group: LayoutGroup) -> tuple[LayoutGroup, IntArray]:
    """One layout of every distinct shape of computation, and which of them each layout has."""
    c = group.candidates
    axes = (c.micro_batch_size, c.tp, c.sp, c.cp, c.cp_method, c.cp_inner, c.ep, c.etp)
    first, which = alike(axes)
    if len(first) == len(group):
        return group, np.arange(len(group))
    some = c.take(first)
    columns = step_columns(some, group.training, group.profile)
    return replace(group, candidates=some, columns=columns), which


def _layer_time(layer: LayerSpec, group: LayoutGroup, rate: Rates) -> PartTime:
    work = layer_work(layer, group.model.hidden_size)
    forward, inputs, weights = _matmuls(work, group, rate)
    passes = layer_passes(layer, work, group)
    mixing_forward = np.zeros(len(group))
    mixing_backward = np.zeros(len(group))
    for mixing in work.mixings:
        one_way, other_way = (
            softmax_s(mixing, group, rate)
            if isinstance(mixing, SoftmaxMixing)
            else _scan_s(mixing, group, rate)
        )
        mixing_forward = mixing_forward + one_way
        mixing_backward = mixing_backward + other_way
    casts_forward, casts_backward = _casts_s(work, group, rate)
    device_forward = (
        forward + mixing_forward + passes.forward / rate.memory_bytes_per_s + casts_forward
    )
    device_backward = (
        inputs
        + weights
        + mixing_backward
        + passes.backward / rate.memory_bytes_per_s
        + casts_backward
    )
    issued_forward = _issued(device_forward, group, rate)
    return PartTime(
        forward=issued_forward,
        backward=_issued(device_backward, group, rate),
        weight=weights,
        mixing=mixing_forward,
        mixing_backward=mixing_backward,
        matmuls=forward,
        last=_last_matmul_s(work, group, rate),
        operations=_discarded_s(layer, group, rate)
        if group.profile.kernels == "megatron"
        else SAVED_MATMULS * forward + np.maximum(0.0, issued_forward - mixing_forward - forward),
    )


def _discarded_s(layer: LayerSpec, group: LayoutGroup, rate: Rates) -> FloatArray:
    """Megatron-Core's parts whose outputs are discarded, run again."""
    columns, ones = group.columns, np.ones(len(group))
    seconds = remade_bytes(layer, group) / rate.memory_bytes_per_s
    for inputs, outputs in up_projections(layer, group):
        shape = _Shape(
            rows=columns.tokens * ones,
            inputs=inputs * ones,
            outputs=outputs / columns.tp,
            count=ones,
        )
        seconds = seconds + _three_matmuls(shape, group, rate, in_linear=True)[0]
    return np.asarray(seconds)


def _issued(device_s: FloatArray, group: LayoutGroup, rate: Rates) -> FloatArray:
    """One pass over a layer with the host's part in it."""
    profile = group.profile
    of_dtensors = np.where(group.columns.tp > 1, profile.tensor_parallel_host_s_per_layer, 0.0)
    host_s = (profile.host_s_per_layer + of_dtensors) / rate.core_share
    return np.maximum(device_s, host_s) if rate.runs_ahead else device_s + host_s


# Matmuls


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """One matmul on one rank: ``count`` times [rows, inputs] x [inputs, outputs]."""

    rows: FloatArray
    inputs: FloatArray
    outputs: FloatArray
    count: FloatArray


def _shape(matmul: Matmul, group: LayoutGroup) -> _Shape:
    """Experts of a rank each take an even share of the copies of tokens that come to it. Weights that
    are whole on every rank see all tokens of the micro-batch, or a rank's own where what they make is
    gathered."""
    columns, ones = group.columns, np.ones(len(group))
    if matmul.experts == 1:
        is_whole = matmul.of_mixer and not cuts_mixers(group.profile)
        cut = ones if is_whole else columns.tp * ones
        own_tokens = matmul.split is None and group.profile.gathers_latents
        rows, count = columns.tokens / (columns.sequence_split if own_tokens else ones), ones
    else:
        cut = experts_tp(group) * ones
        count = matmul.experts / group.candidates.ep
        rows = columns.tokens * matmul.used * cut / columns.tp / count
        rows = rows * group.columns.expert_load
    return _Shape(
        rows=rows,
        inputs=matmul.inputs / (cut if matmul.split == "row" else ones),
        outputs=matmul.outputs / (cut if matmul.split == "column" else ones),
        count=count,
    )


def _matmuls(
    work: LayerWork, group: LayoutGroup, rate: Rates
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Seconds of forward, of gradients of inputs, of gradients of weights."""
    totals = np.zeros((3, len(group)))
    frozen = group.training.adapter is not None
    for matmul, times in work.matmuls:
        shape = _shape(matmul, group)
        seconds = _three_matmuls(shape, group, rate, in_linear=matmul.in_linear)
        totals += times * shape.count * np.stack(seconds)
    return totals[0], totals[1], totals[2] * (0.0 if frozen else 1.0)


def _three_matmuls(
    shape: _Shape, group: LayoutGroup, rate: Rates, *, in_linear: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    m, k, n = shape.rows, shape.inputs, shape.outputs
    moved = (m * k + k * n + m * n) * group.numerics.compute_bytes
    return (
        rate.matmul_s(m, n, k, in_linear=in_linear, moved_bytes=moved),
        rate.matmul_s(m, k, n, in_linear=in_linear, moved_bytes=moved),
        rate.matmul_s(n, k, m, in_linear=in_linear, moved_bytes=moved),
    )


def _last_matmul_s(work: LayerWork, group: LayoutGroup, rate: Rates) -> FloatArray:
    """Forward of a layer's last weight."""
    matmul = work.last
    if matmul is None:
        return np.zeros(len(group))
    shape = _shape(matmul, group)
    forward, _, _ = _three_matmuls(shape, group, rate, in_linear=matmul.in_linear)
    return np.asarray(shape.count * forward)


def _casts_s(work: LayerWork, group: LayoutGroup, rate: Rates) -> tuple[FloatArray, FloatArray]:
    """Casts to fp8 around matmuls: inputs and weights forward, gradients of outputs backward.

    A weight is cast once a step and used by every micro-batch.
    """
    forward, backward = np.zeros(len(group)), np.zeros(len(group))
    each = cast_bytes(group)
    if each is None:
        return forward, backward
    for matmul, times in work.matmuls:
        if not matmul.in_linear:
            continue
        shape = _shape(matmul, group)
        weights = shape.inputs * shape.outputs / group.columns.micro_batches * each.input_of_column
        of_input = each.input_of_row if matmul.split == "row" else each.input_of_column
        count = times * shape.count
        forward = forward + count * (shape.rows * shape.inputs * of_input + weights)
        backward = backward + count * shape.rows * shape.outputs * each.gradient
    return forward / rate.memory_bytes_per_s, backward / rate.memory_bytes_per_s


# Mixing


def kernel_of(group: LayoutGroup) -> AttentionKernel:
    """The attention kernel: the job's, else the engine's."""
    asked = group.training.runtime.attention
    return group.profile.attention if asked == "auto" else asked


def softmax_s(
    mixing: SoftmaxMixing, group: LayoutGroup, rate: Rates
) -> tuple[FloatArray, FloatArray]:
    """Seconds of scores and weighted sum, forward and backward; tp cuts the heads, cp the queries."""
    columns = group.columns
    flops = columns.tokens * mixing_flops_per_token(mixing.block, group.training) / columns.tp
    if kernel_of(group) == "unfused":
        return _unfused_s(mixing, group, rate)
    length = document_length(group.training)
    sequences = columns.tokens * columns.cp / length * mixing.num_heads / columns.tp
    reach = np.asarray(length / columns.cp, dtype=np.float64)
    forward = rate.attention_rate(sequences, reach, mixing.head_dim, kernel_of(group))
    backward = forward * rate.attention_backward_share
    return flops / forward, FLASH_BACKWARD * flops / backward


def _unfused_s(
    mixing: SoftmaxMixing, group: LayoutGroup, rate: Rates
) -> tuple[FloatArray, FloatArray]:
    """Attention as two matmuls a head over all pairs of tokens, with the scores in memory."""
    columns, length = group.columns, group.training.sequence_length
    ones = np.ones(len(group))
    heads = group.candidates.micro_batch_size * mixing.num_heads / columns.tp
    queries = length / columns.cp * ones
    scores = heads * queries * length
    dim = mixing.head_dim * ones
    rows = heads * queries
    matmul = rate.matmul_s(rows, length * ones, dim, in_linear=False) + rate.matmul_s(
        rows, mixing.value_dim * ones, length * ones, in_linear=False
    )
    element = group.numerics.compute_bytes if is_fused(group) else 3 * group.numerics.compute_bytes
    has_dropout = group.layer_basis.attention_dropout > 0
    forward, backward = (
        scores * element * (passes + (2 if has_dropout else 0)) for passes in SCORE_PASSES
    )
    return (
        matmul + forward / rate.memory_bytes_per_s,
        2 * matmul + backward / rate.memory_bytes_per_s,
    )


def _scan_s(mixing: ScanMixing, group: LayoutGroup, rate: Rates) -> tuple[FloatArray, FloatArray]:
    """A recurrence over tokens by its FLOPs, backward twice forward."""
    columns, length = group.columns, group.training.sequence_length
    cut = columns.tp if cuts_mixers(group.profile) else 1
    tokens = columns.tokens / cut
    flops = tokens * attention_flops(mixing.block, [length]) / length
    moved = tokens * (mixing.width * group.numerics.compute_bytes)
    forward = flops / rate.scan_flops_per_s
    return (
        forward + SCAN_PASSES[0] * moved / rate.memory_bytes_per_s,
        2 * forward + SCAN_PASSES[1] * moved / rate.memory_bytes_per_s,
    )


# Head and optimizer


def head_time(group: LayoutGroup, rate: Rates) -> PartTime:
    """Output projection and loss: the logits are passed over as the loss's kernel does."""
    few, which = _distinct_shapes(group)
    return _for_each(_head_time(few, rate), which)


def _head_time(group: LayoutGroup, rate: Rates) -> PartTime:
    model, columns, ones = group.model, group.columns, np.ones(len(group))
    shape = _Shape(
        rows=columns.tokens * ones,
        inputs=model.embedding_width * ones,
        outputs=model.vocab_size / columns.tp,
        count=ones,
    )
    forward, inputs, weights = _three_matmuls(shape, group, rate, in_linear=False)
    if group.training.adapter is not None:
        weights = np.zeros(len(group))
    divided = 1 if group.profile.gathers_logits else columns.tp
    logits = columns.tokens * model.vocab_size / divided
    one_way, other_way = LOSS_BYTES[_loss_kernel(group)]
    return PartTime(
        forward=forward + logits * one_way / rate.memory_bytes_per_s,
        backward=inputs + weights + logits * other_way / rate.memory_bytes_per_s,
        weight=weights,
        mixing=np.zeros(len(group)),
        mixing_backward=np.zeros(len(group)),
        matmuls=forward,
        last=forward,
        operations=np.zeros(len(group)),
    )


def _loss_kernel(group: LayoutGroup) -> LossKind:
    """As ``loss_kind``, but that fused layers come with a fused loss where the job does not say."""
    is_open = group.training.runtime.loss is None
    return "fused" if is_open and is_fused(group) else loss_kind(group)


def optimizer_s(
    parameters_stepped: FloatArray,
    gradients_held: FloatArray,
    training: TrainingSpec,
    rate: Rates,
) -> FloatArray:
    """Passes over memory: the norm and the clip read each gradient twice and write it once; then the
    step (``stepped_bytes``).

    Args:
        parameters_stepped: parameters that this rank updates.
        gradients_held: gradients that it holds, of which the norm is taken.
    """
    clipped = 3 * training.precision.gradient_bytes if training.max_grad_norm is not None else 0
    bytes_passed = gradients_held * clipped + parameters_stepped * stepped_bytes(training)
    return np.asarray(bytes_passed / rate.memory_bytes_per_s)


def stepped_bytes(training: TrainingSpec) -> int:
    """Bytes that the optimizer's step moves for one parameter: gradient, parameter and moments read,
    the latter two written back."""
    precision, moments = training.precision, OPTIMIZER_MOMENTS[training.optimizer]
    written = precision.parameter_bytes + moments * precision.moment_bytes
    return precision.gradient_bytes + 2 * written
