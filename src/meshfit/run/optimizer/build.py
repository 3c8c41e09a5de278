"""The optimizer over one rank's parameters, as a hand-written loop would build it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from meshfit.errors import InputError
from meshfit.run.mesh import RankMesh
from meshfit.workload.training import TrainingSpec

_CLASSES = {"adamw": AdamW, "sgd": SGD}


def build_optimizer(
    parameters: Sequence[nn.Parameter],
    training: TrainingSpec,
    mesh: RankMesh,
    matrices: Sequence[nn.Parameter] = (),
) -> Optimizer:
    """The optimizer; with ZeRO stage 1 its state is divided over ``dp_shard`` and ``cp``.

    ``matrices`` are those of ``parameters`` that Muon makes orthogonal.

    Raises:
        InputError: Muon with ZeRO stage 1, which would give a rank whole parameters of one kind.
    """
    options: dict[str, Any] = {
        "lr": training.learning_rate,
        "weight_decay": training.weight_decay,
    }
    if training.optimizer == "adamw":  # DTensor has no rule for SGD's fused kernel
        options["fused"] = True
    if training.optimizer == "muon":
        return _muon(parameters, matrices, mesh, options)
    optimizer_class = _CLASSES[training.optimizer]
    if mesh.optimizer_shards is None:
        return optimizer_class(parameters, **options)
    group = mesh.optimizer_shards.get_group()
    if mesh.layout.tp > 1 or mesh.layout.pp > 1:
        from meshfit.run.optimizer.zero1 import ShardedOptimizer  # noqa: PLC0415

        return ShardedOptimizer(parameters, partial(optimizer_class, **options), group)
    from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

    return ZeroRedundancyOptimizer(
        parameters,
        optimizer_class,
        process_group=group,
        parameters_as_bucket_view=True,
        **options,
    )


def _muon(
    parameters: Sequence[nn.Parameter],
    matrices: Sequence[nn.Parameter],
    mesh: RankMesh,
    options: dict[str, Any],
) -> Optimizer:
    if mesh.layout.zero_stage == 1:
        raise InputError(
            f"layout {mesh.layout.label}: optimizer muon runs with zero_stage 0, 2 or 3"
        )
    from meshfit.run.optimizer.muon import Muon  # noqa: PLC0415

    inside = {id(matrix) for matrix in matrices}
    return Muon(matrices, [one for one in parameters if id(one) not in inside], **options)
