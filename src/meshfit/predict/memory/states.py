"""Model states of one rank between steps, and whether DDP keeps gradients in buckets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.adapters import base_bytes
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import Held, Parameters, rank_held
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.predict.shape.schedule import RankShape
from meshfit.workload.optimizers import EIGHT_BIT_BLOCK
from meshfit.workload.training import OPTIMIZER_MOMENTS, TrainingSpec

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """What a rank holds between steps, for every layout, in bytes."""

    parameters: FloatArray
    gradients: FloatArray
    optimizer: FloatArray


def state_bytes(shape: RankShape, group: LayoutGroup) -> StateBytes:
    """Model states of one rank: parameters over tp, then over the group that shards them.

    ``N / tp * (parameter / D23 + gradient / D23 + moments / D123)``, with D the ranks over which
    the ZeRO stages named divide (1910.02054, section 5); for experts tp is ep x etp, and D what is
    left of the ranks that these are taken from. Frozen weights have neither gradient nor moments.
    Padding of shards is ignored. An optimizer that steps in backward leaves no gradient but the one at
    hand (``predict.memory.temporaries``).
    """
    columns, training = group.columns, group.training
    precision, adapter = training.precision, training.adapter
    held = rank_held(shape, group.model, adapter)
    trained = held.trained.on_shard(columns, columns.shards_parameters)
    return StateBytes(
        parameters=trained * precision.parameter_bytes
        + frozen_bytes(held, training, _frozen_element(group)).on_shard(
            columns, columns.shards_parameters
        ),
        gradients=np.where(_steps_in_backward(group), 0.0, trained * precision.gradient_bytes),
        optimizer=moment_bytes(held, training).on_shard(columns, columns.shards_optimizer),
    )


def _steps_in_backward(group: LayoutGroup) -> BoolArray:
    return np.asarray(
        group.training.runtime.optimizer_in_backward & (group.columns.micro_batches == 1)
    )


def on_device(states: StateBytes, group: LayoutGroup) -> tuple[StateBytes, FloatArray]:
    """What of the states is on the accelerator between uses, and the bytes on the host.

    Offloaded states (FSDP2's ``CPUOffloadPolicy``) are copied over shard by shard as units are
    gathered, and the optimizer steps on the host. A paged optimizer's states count on the host: the
    driver brings over what is in use where the accelerator has room.
    """
    away = group.columns.offloads_states
    pages = away | group.training.runtime.paged_optimizer
    whole = states.parameters + states.gradients
    here = StateBytes(
        parameters=np.where(away, 0.0, states.parameters),
        gradients=np.where(away, 0.0, states.gradients),
        optimizer=np.where(pages, 0.0, states.optimizer),
    )
    return here, np.where(away, whole, 0.0) + np.where(pages, states.optimizer, 0.0)


def frozen_bytes(held: Held, training: TrainingSpec, element_bytes: int) -> Parameters:
    """Frozen parameters in bytes, each of ``element_bytes`` where it is not of QLoRA's few bits."""
    if training.adapter is None:
        return Parameters()
    linear = base_bytes(training.adapter.base_bits, element_bytes)
    return held.frozen * element_bytes + held.frozen_linears * linear


def _frozen_element(group: LayoutGroup) -> int:
    """Bytes of one as it is stored."""
    precision = group.training.precision
    return precision.parameter_bytes if group.profile.frozen_as_trained else precision.compute_bytes


def moment_bytes(held: Held, training: TrainingSpec) -> Parameters:
    """Optimizer state in bytes: see ``workload.optimizers`` for each kind's rule."""
    each = training.precision.moment_bytes
    if training.optimizer == "adamw_8bit":
        return held.trained * (2 * (1 + FP32_BYTES / EIGHT_BIT_BLOCK))
    if training.optimizer == "muon":
        return held.matrices * each + (held.trained + held.matrices * -1) * (2 * each)
    return held.trained * (OPTIMIZER_MOMENTS[training.optimizer] * each)


def uses_ddp(group: LayoutGroup) -> BoolArray:
    """Whether gradients are summed by DDP."""
    columns = group.columns
    return ~columns.through_fsdp & (columns.replicas * columns.state_shard > 1)


def in_buckets(group: LayoutGroup) -> BoolArray:
    """Whether gradients are views of DDP's buckets, which are never freed."""
    return uses_ddp(group) & group.profile.gradients_live_in_buckets


def waits_for_replicas(group: LayoutGroup) -> BoolArray:
    """Whether shards of gradients wait for the sum over replicas that ends the step."""
    columns = group.columns
    hybrid = columns.shards_parameters & (columns.replicas > 1)
    return hybrid & (columns.micro_batches > 1) & ~columns.keeps_gradients
