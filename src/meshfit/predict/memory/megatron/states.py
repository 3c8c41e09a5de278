"""Model states of one rank between steps: weights, the gradient buffer, the optimizer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.megatron.parameters import (
    RankParameters,
    adapter_parameters,
    linear_parameters,
    on_rank,
    rank_parameters,
)
from meshfit.predict.shape.adapters import base_bytes
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.predict.shape.schedule import RankShape
from meshfit.workload.training import OPTIMIZER_MOMENTS

FloatArray = NDArray[np.float64]

FP8_COPIES = 2
"""A weight in fp8 and its transpose, which Transformer Engine keeps over the micro-batches of a step.
They are the parameter itself, 2 bytes as well, where parameters are gathered in fp8."""


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """Bytes on one rank, for every layout.

    Attributes:
        weights: in the compute type.
        gradients: the buffer that gradients are accumulated in.
        optimizer: master copy (none in fp32) and moments.
        main_gradients: fp32 copies of gradients that are kept in another type; from the optimizer's
            step to the next step's start.
    """

    weights: FloatArray
    gradients: FloatArray
    optimizer: FloatArray
    main_gradients: FloatArray


def gradient_bytes(group: LayoutGroup) -> int:
    """Of one gradient in the buffer: fp32 under bf16 (``accumulate_allreduce_grads_in_fp32``)."""
    precision = group.training.precision
    if group.profile.megatron.gradient_bytes is not None:
        return group.profile.megatron.gradient_bytes
    return precision.compute_bytes if precision.matmul == "fp16" else FP32_BYTES


def state_bytes(shape: RankShape, group: LayoutGroup) -> StateBytes:
    """2 + 4 + 12 bytes a parameter under bf16; the distributed optimizer (stage 1) shares the 12 out
    over the ranks of one instance, Megatron-FSDP the 4 (stage 2) and the 2 (stage 3) as well.

    Experts are shared out over their own data-parallel group. Beside adapters weights are frozen:
    they have neither gradients nor an optimizer. Padding of buckets and shards is ignored.
    """
    stage, precision = group.candidates.zero_stage, group.training.precision
    trained, frozen = _trained_and_frozen(shape, group)
    shard, expert_shard = _shards(group)

    def shared_out(held: RankParameters, from_stage: int) -> FloatArray:
        is_shared = stage >= from_stage
        return np.asarray(
            held.dense / np.where(is_shared, shard, 1)
            + held.experts / np.where(is_shared, expert_shard, 1)
        )

    element, reduced = precision.compute_bytes, gradient_bytes(group)
    master = 0 if element == FP32_BYTES else precision.parameter_bytes
    moments = OPTIMIZER_MOMENTS[group.training.optimizer] * precision.moment_bytes
    copied = FP32_BYTES if reduced != FP32_BYTES else 0
    weights = shared_out(trained, 3) * element
    if frozen is not None and group.training.adapter is not None:
        stored = base_bytes(group.training.adapter.base_bits, element)
        weights = weights + shared_out(frozen, 3) * stored
    if precision.matmul == "fp8" and not group.training.runtime.fp8_parameters:
        linears = on_rank(linear_parameters(shape, group.model), group)
        weights = weights + linears.total * FP8_COPIES
    return StateBytes(
        weights=weights,
        gradients=shared_out(trained, 2) * reduced,
        optimizer=shared_out(trained, 1) * (master + moments),
        main_gradients=shared_out(trained, 1) * copied,
    )


def _trained_and_frozen(
    shape: RankShape, group: LayoutGroup
) -> tuple[RankParameters, RankParameters | None]:
    model = on_rank(rank_parameters(shape, group.model), group)
    adapter = group.training.adapter
    if adapter is None:
        return model, None
    return on_rank(adapter_parameters(shape, group.model, adapter), group), model


def _shards(group: LayoutGroup) -> tuple[FloatArray, FloatArray]:
    """Ranks that share states out, and those that share an expert's."""
    c = group.candidates
    dense = c.dp_shard * c.cp
    return dense.astype(np.float64), np.maximum(1.0, dense * c.tp / (c.ep * c.etp))
