"""Parameters and gradients as data parallelism sends them: which ranks share them, bytes, when."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.states import frozen_bytes
from meshfit.predict.shape.columns import StepColumns
from meshfit.predict.shape.cut import cuts_mixers
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import Held, Parameters, ends_held, layer_held, layers_held
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.message import Size
from meshfit.workload.model import LayerSpec
from meshfit.workload.training import TrainingSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Which ranks share the states of what: of all that is not experts with groups of their own, or
    of these.

    Attributes:
        axis: ``dp_shard`` or ``edp``.
        shards: ranks over which states are divided.
        replicas: ranks that hold the same shard; replica_axis: along which they lie.
    """

    axis: str
    shards: IntArray
    replicas: IntArray
    replica_axis: str = "dp_replicate"

    def of(self, parameters: Parameters, columns: StepColumns) -> FloatArray:
        """Of these parameters, what one rank holds before data parallelism shards anything."""
        experts = parameters.experts / columns.expert_split
        if self.axis == "edp":
            return np.where(columns.splits_experts, experts, 0.0)
        shared = parameters.dense(columns)
        if not parameters.experts:
            return shared
        return shared + np.where(columns.splits_experts, 0.0, experts)


def sharings(group: LayoutGroup) -> tuple[Sharing, ...]:
    """Of dense parameters; with expert parallelism of experts too."""
    columns = group.columns
    dense = Sharing(axis="dp_shard", shards=columns.state_shard, replicas=columns.replicas)
    if not columns.splits_experts.any() or all(kind.moe is None for kind in group.model.layers):
        return (dense,)
    folds_replicas = "dp_replicate" in group.profile.expert_fold
    experts = Sharing(
        axis="edp",
        shards=columns.expert_shard,
        replicas=columns.expert_replicas,
        replica_axis="edp" if folds_replicas else "dp_replicate",
    )
    return dense, experts


def layer_states(kind: LayerSpec, group: LayoutGroup) -> Held:
    """Parameters of one layer."""
    return layer_held(
        kind,
        group.model.hidden_size,
        group.model.vectors_per_norm,
        group.training.adapter,
        mixers_cut=cuts_mixers(group.profile),
    )


def ends_states(shape: RankShape, group: LayoutGroup) -> Held:
    """Parameters of a rank beside layers."""
    return ends_held(shape, group.model, group.training.adapter)


def rank_states(shape: RankShape, group: LayoutGroup) -> Held:
    """All parameters of a rank."""
    model = group.model
    layers = layers_held(
        shape.layers,
        model.hidden_size,
        model.vectors_per_norm,
        group.training.adapter,
        mixers_cut=cuts_mixers(group.profile),
    )
    return ends_states(shape, group) + layers


def gathered_parameters(held: Held, sharing: Sharing, group: LayoutGroup) -> Size:
    """Parameters as they are gathered for use; frozen ones as they are stored."""
    columns, training = group.columns, group.training
    trained, element = sharing.of(held.trained, columns), _gathered_bytes(training)
    if training.adapter is None:
        return Size(((trained, "parameters"), (element, "B")))
    frozen = sharing.of(frozen_bytes(held, training, training.precision.compute_bytes), columns)
    return Size(((trained * element + frozen, "B"),))


def _gathered_bytes(training: TrainingSpec) -> int:
    """Of one trained parameter: in fp8 where the job asks for it, which adapters never are."""
    in_fp8 = training.precision.matmul == "fp8" and training.runtime.fp8_parameters
    return 1 if in_fp8 and training.adapter is None else training.precision.compute_bytes


def reduced_gradients(
    held: Held, sharing: Sharing, group: LayoutGroup, shards: IntArray | int = 1
) -> Size:
    """Gradients of one rank as they are summed, or of one of so many shards of them."""
    trained = sharing.of(held.trained, group.columns) / shards
    return Size(((trained, "parameters"), (group.training.precision.gradient_bytes, "B")))


def updated_parameters(held: Held, sharing: Sharing, group: LayoutGroup) -> Size:
    """What a sharded optimizer has updated, as every rank needs it: gathered in the type that layers
    compute in, or broadcast as it is kept."""
    training = group.training
    is_gathered = scatters_whole_gradients(group)
    element = _gathered_bytes(training) if is_gathered else training.precision.parameter_bytes
    return Size(((sharing.of(held.trained, group.columns), "parameters"), (element, "B")))


def scatters_whole_gradients(group: LayoutGroup) -> bool:
    """Whether an optimizer that is sharded beside whole parameters gets its gradients by a scatter;
    else all are summed everywhere, and updates broadcast (``ZeroRedundancyOptimizer``)."""
    return group.profile.scatters_gradients or not group.profile.stage_2_shards_parameters


def shards_beside_whole_parameters(group: LayoutGroup) -> BoolArray:
    """Whether the optimizer is sharded while parameters stay whole (stage 1, and 2 outside FSDP)."""
    return group.columns.shards_optimizer & ~group.columns.shards_parameters


def gathers_once(group: LayoutGroup) -> BoolArray:
    """Whether a pipeline stage keeps gathered parameters over all micro-batches."""
    columns = group.columns
    return columns.keeps_gradients & ~columns.frees_after_forward & (columns.pp > 1)


def whole_gradient_reductions(group: LayoutGroup) -> IntArray:
    """How often a step scatters gradients of whole parameters: once, or after every micro-batch
    where no rank keeps more than its shard of them (stage 2)."""
    columns = group.columns
    each = columns.shards_gradients & ~columns.keeps_gradients
    return np.where(each, columns.micro_batches, 1)


def present(size: Size, times: FloatArray | IntArray | BoolArray) -> FloatArray:
    """``times``, but none of a message without content."""
    return np.where(size.bytes > 0, times, 0.0)
