"""The optimizer over one rank's parameters, as a hand-written loop would build it."""

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from meshfit.run.mesh import RankMesh
from meshfit.workload.training import TrainingSpec

_CLASSES = {"adamw": AdamW, "sgd": SGD}


def build_optimizer(
    parameters: Iterable[nn.Parameter], training: TrainingSpec, mesh: RankMesh
) -> Optimizer:
    """The optimizer; with ZeRO stage 1 its state is divided over ``dp_shard`` and ``cp``."""
    options: dict[str, Any] = {
        "lr": training.learning_rate,
        "weight_decay": training.weight_decay,
    }
    if training.optimizer == "adamw":  # DTensor has no rule for SGD's fused kernel
        options["fused"] = True
    optimizer_class = _CLASSES[training.optimizer]
    if mesh.layout.zero_stage != 1 or mesh.shards is None:
        return optimizer_class(parameters, **options)
    from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

    return ZeroRedundancyOptimizer(
        parameters,
        optimizer_class,
        process_group=mesh.shards.get_group(),
        parameters_as_bucket_view=True,
        **options,
    )
