"""Peak memory of one pipeline rank under DeepSpeed's ZeRO, with the activations of PyTorch's modules.

DeepSpeed casts the model to 16 bits and keeps, per parameter: the 16-bit weight (divided under stage
3), a 16-bit gradient (stages 2 and 3), and an fp32 copy with its moments (stages 1 to 3)
(``runtime/zero/stage_1_and_2.py``, ``stage3.py``). Gradients are reduced through one flat bucket;
stage 3 gathers parameters ahead of their use up to a limit and frees them beyond it.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.predict.memory.device import context_bytes, with_fragments
from meshfit.predict.memory.kept import activation_moments
from meshfit.predict.memory.logits import logit_moments
from meshfit.predict.memory.moments import MOMENTS, at_peak
from meshfit.predict.memory.pytorch import RankMemory
from meshfit.predict.memory.states import StateBytes, frozen_bytes, moment_bytes
from meshfit.predict.memory.temporaries import temporary_moments
from meshfit.predict.memory.unsharded import units
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import rank_held
from meshfit.predict.shape.layer_basis import FP32_BYTES, cast
from meshfit.predict.shape.schedule import InFlight, RankShape, in_flight

FloatArray = NDArray[np.float64]

REDUCE_BUCKET_ELEMENTS = 500_000_000
"""``reduce_bucket_size`` where a job gives no bucket."""

MAX_LIVE_ELEMENTS = 1_000_000_000
"""``stage3_max_live_parameters``."""

LIVE_UNITS = 2
"""Layers that are whole at least: the one in use and the next."""

BACKWARD: tuple[str, ...] = ("head_backward", "backward_start", "layer_passed", "backward_end")


@dataclass(frozen=True, kw_only=True)
class _Zero:
    """Bytes on one rank, for every layout.

    Attributes:
        whole_gradients: of all parameters, in the compute type.
        step_gradients: fp32 gradients of what this rank steps, while it does.
    """

    states: StateBytes
    whole_gradients: FloatArray
    step_gradients: FloatArray


def rank_memory(shape: RankShape, group: LayoutGroup) -> RankMemory:
    """Memory of one pipeline rank at its peak, for every layout of ``group``.

    Offloaded states are on the host with the gradients that the optimizer reads there.
    """
    group = _in_16_bits(group)
    columns = group.columns
    held = in_flight(group.pipeline, shape.rank, columns.micro_batches, group.candidates.schedule)
    zero = _zero(shape, group)
    away = columns.offloads_states
    here = StateBytes(
        parameters=np.where(away & columns.frees_after_forward, 0.0, zero.states.parameters),
        gradients=np.where(away, 0.0, zero.states.gradients),
        optimizer=np.where(away, 0.0, zero.states.optimizer),
    )
    stepping = np.where(away, 0.0, zero.step_gradients)
    by_category = {
        "gradients": _gradients(held, here),
        "activations": activation_moments(shape, group, held).stacked(),
        "logits_and_loss": logit_moments(shape, group, held).stacked(),
        "communication": _communication(shape, group, zero),
        "temporary": temporary_moments(shape, group, held, here).stacked(),
    }
    by_category["temporary"][MOMENTS.index("optimizer")] += stepping
    moment, peak = at_peak(by_category)
    peak |= {"parameters": here.parameters, "optimizer": here.optimizer}
    categories = {name: peak.get(name, np.zeros(len(group))) for name in MEMORY_CATEGORIES}
    allocated = np.asarray(sum(categories.values()))
    return RankMemory(
        categories=categories,
        moment=moment,
        reserved=with_fragments(allocated, group),
        context=context_bytes(group),
        host=_total(zero.states) - _total(here),
    )


def _total(states: StateBytes) -> FloatArray:
    return states.parameters + states.gradients + states.optimizer


def _in_16_bits(group: LayoutGroup) -> LayoutGroup:
    """The group as DeepSpeed's engine computes it: everything cast, and no DDP around it."""
    columns = replace(
        group.columns,
        through_fsdp=np.ones(len(group), dtype=np.bool_),
        keeps_gradients=np.zeros(len(group), dtype=np.bool_),
    )
    return replace(group, numerics=cast(group.training.precision), columns=columns)


def _zero(shape: RankShape, group: LayoutGroup) -> _Zero:
    columns, training = group.columns, group.training
    stage, precision = group.candidates.zero_stage, training.precision
    held = rank_held(shape, group.model, training.adapter)
    element = precision.compute_bytes
    master = 0 if element == FP32_BYTES else precision.parameter_bytes
    frozen = frozen_bytes(held, training, training.precision.compute_bytes).on_shard(
        columns, stage >= 3
    )
    stepped = held.trained.on_shard(columns, stage >= 1)
    states = StateBytes(
        parameters=held.trained.on_shard(columns, stage >= 3) * element + frozen,
        gradients=held.trained.on_shard(columns, stage >= 2) * element,
        optimizer=stepped * master + moment_bytes(held, training).on_shard(columns, stage >= 1),
    )
    return _Zero(
        states=states,
        whole_gradients=held.trained.on_rank(columns) * element,
        step_gradients=stepped * (0 if element == FP32_BYTES else FP32_BYTES),
    )


def _gradients(held: InFlight, states: StateBytes) -> FloatArray:
    """[moments, N]: from the first backward of a step to its end."""
    waiting = np.where(held.accumulating, states.gradients, 0.0)
    late = ("backward_end", "optimizer")
    return np.stack([states.gradients if name in late else waiting for name in MOMENTS])


def _communication(shape: RankShape, group: LayoutGroup, zero: _Zero) -> FloatArray:
    """[moments, N]: the reduction's bucket in backward, and what stage 3 has gathered."""
    stage, element = group.candidates.zero_stage, group.training.precision.compute_bytes
    given = group.training.runtime.bucket_bytes
    bucket = np.minimum(zero.whole_gradients, given or REDUCE_BUCKET_ELEMENTS * element)
    bucket = np.where((stage >= 1) & (group.columns.state_shard > 1), bucket, 0.0)
    root, block, everything = units(shape, group)
    needed = np.maximum(root.used + LIVE_UNITS * block.used, MAX_LIVE_ELEMENTS * element)
    live = np.where(stage >= 3, np.minimum(everything.used, needed), 0.0)
    nothing = np.zeros(len(group))
    gathered = [nothing if name == "optimizer" else live for name in MOMENTS]
    reducing = [bucket if name in BACKWARD else nothing for name in MOMENTS]
    return np.asarray(np.stack(gathered) + np.stack(reducing))
