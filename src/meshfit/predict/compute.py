"""Seconds of computation: matmuls against peak and memory bandwidth, and passes over memory."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.errors import InputError
from meshfit.predict.activations import FP32_BYTES, BytesPerToken, layer_tensors, total
from meshfit.predict.group import LayoutGroup
from meshfit.workload.counts import attention_flops
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec
from meshfit.workload.training import OPTIMIZER_MOMENTS, TrainingSpec

FloatArray = NDArray[np.float64]

FLASH_BACKWARD = 2.5
"""Backward over forward FLOPs of flash attention: five matmuls to two (2307.08691, section 3.1)."""
_FALLBACKS = {
    "fp32": ("fp32", "tf32"),
    "bf16_mixed": ("bf16", "fp16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp16_mixed": ("fp16", "bf16", "fp32"),
    "fp8_mixed": ("fp8", "bf16"),
}


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What one accelerator achieves; ``runs_ahead``: whether the host issues work in advance."""

    matmul_flops_per_s: float
    memory_bytes_per_s: float
    runs_ahead: bool


def rates(accelerator: AcceleratorSpec, precision_name: str, factor: float = 1.0) -> Rates:
    """Achievable rates in a precision; ``factor`` divides both (from calibration).

    Raises:
        InputError: the accelerator has no figure for this precision.
    """
    for name in _FALLBACKS[precision_name]:
        if name in accelerator.peak_flops_per_s:
            peak = accelerator.peak_flops_per_s[name] * accelerator.matmul_fraction
            return Rates(
                matmul_flops_per_s=peak / factor,
                memory_bytes_per_s=accelerator.memory_bytes_per_s / factor,
                runs_ahead=accelerator.device_type == "cuda",
            )
    known = ", ".join(accelerator.peak_flops_per_s)
    raise InputError(
        f"accelerator {accelerator.name} has no peak rate for {precision_name}; known: {known}"
    )


@dataclass(frozen=True, kw_only=True)
class PartTime:
    """Seconds of one part (a layer, the head) for one micro-batch on one rank.

    ``weight`` is the share of ``backward`` that only makes gradients of weights: what zero-bubble
    schedules put off.
    """

    forward: FloatArray
    backward: FloatArray
    weight: FloatArray


def layer_time(layer: LayerSpec, group: LayoutGroup, rate: Rates) -> PartTime:
    """One layer: its matmuls, attention, and passes over what lies between them.

    Every tensor that autograd keeps is written once and read once in forward; in backward it is
    read, and its gradient written and read. A backward matmul is two of the forward's size.
    """
    columns, training, profile = group.columns, group.training, group.profile
    matmuls = np.zeros(len(group))
    shapes = Counter(_tp_matmuls(layer.attention, layer.mlp, group.model.hidden_size))
    for (whole, divided), count in shapes.items():
        matmuls += count * _matmul_s(whole, divided, group, rate)
    flops = attention_flops(layer.attention, [training.sequence_length]) / training.sequence_length
    attention = columns.tokens * flops / columns.tp / rate.matmul_flops_per_s
    kept = total(layer_tensors(layer, group.model, group.numerics, profile)).on_rank(columns)
    passes = kept / rate.memory_bytes_per_s
    return PartTime(
        forward=_issued(matmuls + attention + 2 * passes, group, rate),
        backward=_issued(2 * matmuls + FLASH_BACKWARD * attention + 3 * passes, group, rate),
        weight=matmuls,
    )


def _issued(device_s: FloatArray, group: LayoutGroup, rate: Rates) -> FloatArray:
    """One pass over a layer with the host's part in it."""
    profile = group.profile
    of_dtensors = np.where(group.columns.tp > 1, profile.tensor_parallel_host_s_per_layer, 0.0)
    host_s = profile.host_s_per_layer + of_dtensors
    return np.maximum(device_s, host_s) if rate.runs_ahead else device_s + host_s


def head_time(group: LayoutGroup, rate: Rates) -> PartTime:
    """Output projection and loss; the fp32 logits are passed over four times each way."""
    model = group.model
    matmul = _matmul_s(model.hidden_size, model.vocab_size, group, rate)
    held = float(model.vocab_size * FP32_BYTES)
    logits = BytesPerToken(whole=held) if group.profile.gathers_logits else BytesPerToken(tp=held)
    passes = 4 * logits.on_rank(group.columns) / rate.memory_bytes_per_s
    return PartTime(forward=matmul + passes, backward=2 * matmul + passes, weight=matmul)


def optimizer_s(
    parameters_stepped: FloatArray,
    gradients_held: FloatArray,
    training: TrainingSpec,
    rate: Rates,
) -> FloatArray:
    """Passes over memory: the norm and the clip read each gradient twice and write it once; the
    step reads gradient, parameter and moments and writes the latter two back.

    Args:
        parameters_stepped: parameters that this rank updates.
        gradients_held: gradients that it holds, of which the norm is taken.
    """
    precision = training.precision
    moments = OPTIMIZER_MOMENTS[training.optimizer]
    clipped = 3 * precision.gradient_bytes if training.max_grad_norm is not None else 0
    stepped = (
        precision.gradient_bytes
        + 2 * precision.parameter_bytes
        + 2 * moments * precision.moment_bytes
    )
    bytes_passed = gradients_held * clipped + parameters_stepped * stepped
    return np.asarray(bytes_passed / rate.memory_bytes_per_s)


def _tp_matmuls(
    attention: AttentionSpec, mlp: MlpSpec, hidden_size: int
) -> tuple[tuple[int, int], ...]:
    """(dim that is whole, dim that tp divides) of every weight of a layer."""
    query = attention.num_attention_heads * attention.head_dim
    key = attention.num_key_value_heads * attention.head_dim
    return (
        *((hidden_size, width) for width in (query, key, key, query)),
        *((hidden_size, mlp.intermediate_size),) * (3 if mlp.gated else 2),
    )


def _matmul_s(whole: int, divided: int, group: LayoutGroup, rate: Rates) -> FloatArray:
    """Seconds of one matmul: the larger of arithmetic and of moving operands and result once."""
    share = divided / group.columns.tp
    flops = 2.0 * group.columns.tokens * whole * share
    elements = group.columns.tokens * (whole + share) + whole * share
    moved = elements * group.numerics.compute_bytes
    return np.asarray(np.maximum(flops / rate.matmul_flops_per_s, moved / rate.memory_bytes_per_s))
