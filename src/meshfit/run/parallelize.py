"""From a layout to the modules that one rank runs.

The order matters: the pipeline decides which layers exist here, tensor parallelism turns their
parameters into shards, expert parallelism those of experts, context parallelism takes over
attention, recompute wraps the layers' forwards, data parallelism shards what is left.
All of it happens on meta parameters; only then does a rank load the shards that are its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.mesh.stage_placement import SPLIT_SCHEDULES, stages_of_rank
from meshfit.run.context.attention import (
    ContextParallel,
    apply_context_parallel,
    context_parallel_of,
)
from meshfit.run.context.refusals import refusals as context_refusals
from meshfit.run.data import shard_or_replicate, uses_ddp, uses_fsdp, wrap_ddp
from meshfit.run.experts.model import ExpertModel
from meshfit.run.experts.policy import NO_LIMITS, ExpertPolicy
from meshfit.run.experts.refusals import refusals as expert_refusals
from meshfit.run.mesh import RankMesh
from meshfit.run.model.adapters import attach_adapters, freeze_all_but_adapters
from meshfit.run.model.loss import token_loss_sum
from meshfit.run.model.packed import Packing
from meshfit.run.model.transformer import Stage, build_causal_lm, family_of, is_mixture
from meshfit.run.model.weights import load_shards
from meshfit.workload.training import AdapterSpec, PrecisionSpec


@dataclass(frozen=True, kw_only=True)
class RankModel:
    """What one rank runs of a model.

    Attributes:
        stages: its stages in model order; more than one only with virtual stages.
        modules: what to call for each stage: the stage itself, or DDP around it.
        stage_ids: their indices in the whole pipeline.
        disabled_dropout: config keys whose dropout was set to 0, with what they were.
        experts: what it has of mixtures of experts; None in a dense model.
    """

    stages: tuple[Stage, ...]
    modules: tuple[nn.Module, ...]
    stage_ids: tuple[int, ...]
    disabled_dropout: Mapping[str, float]
    experts: ExpertModel | None = None

    def parameters_by_name(self) -> dict[str, nn.Parameter]:
        """Name -> trained parameter (or this rank's shard of it), over all stages of this rank.

        Names are Hugging Face's, and PEFT's for adapters. A tied head on another stage than its
        embedding is left out: it is ``tied_copy``.
        """
        return {
            name: parameter
            for stage in self.stages
            for name, parameter in stage.parameters_by_name().items()
            if parameter.requires_grad and parameter is not self.tied_copy
        }

    def layer_matrices(self) -> list[nn.Parameter]:
        """Trained matrices inside layers: neither embedding nor head."""
        return [
            parameter
            for stage in self.stages
            for layer in stage.layers
            for parameter in layer.parameters()
            if parameter.requires_grad and parameter.ndim == 2
        ]

    def packings(self) -> dict[str, Packing]:
        """Of the parameters that pack several matrices cut by tensor parallelism, by name."""
        return {name: one for stage in self.stages for name, one in stage.packings.items()}

    @property
    def tied_copy(self) -> nn.Parameter | None:
        """The last stage's copy of the first stage's embedding, where this rank trains it."""
        copy = self.stages[-1].tied_copy
        return copy if copy is not None and copy.requires_grad else None

    @property
    def token_loss_sum(self) -> Callable[..., Tensor]:
        """``loss.token_loss_sum``, watched by whoever has to know what tokens lose."""
        return token_loss_sum if self.experts is None else self.experts.token_loss_sum


def build_rank_model(
    config: Mapping[str, Any],
    weights: Path,
    mesh: RankMesh,
    precision: PrecisionSpec,
    device: torch.device,
    *,
    adapter: AdapterSpec | None = None,
    policy: ExpertPolicy = NO_LIMITS,
) -> RankModel:
    """This rank's part of the model, parallelised, with its weights loaded.

    Raises:
        InputError: the layout asks for what the runner cannot do with this model.
    """
    bare = build_bare_model(config, mesh, precision, adapter=adapter, policy=policy)
    for stage in bare.stages:
        load_shards(stage, weights, device)
    return with_replicas(bare, mesh)


def build_bare_model(
    config: Mapping[str, Any],
    mesh: RankMesh,
    precision: PrecisionSpec,
    *,
    adapter: AdapterSpec | None = None,
    policy: ExpertPolicy = NO_LIMITS,
) -> RankModel:
    """This rank's part of the model, parallelised, its parameters shapes without memory.

    Raises:
        InputError: the layout asks for what the runner cannot do with this model.
    """
    layout = mesh.layout
    check_runnable(config, layout)
    stage_ids = stages_of_rank(layout.schedule, mesh.index("pp"), layout.pp, layout.vpp)
    stages: list[Stage] = []
    disabled: dict[str, float] = {}
    experts: ExpertModel | None = None
    context = context_parallel_of(mesh)
    for stage_id in stage_ids:
        stage, disabled = _build_stage(config, layout, stage_id, precision)
        if experts is None and is_mixture(config):
            experts = ExpertModel(stage.model.config, mesh, policy)
        if experts is not None:
            experts.install(stage)
        if adapter is not None:
            attach_adapters(stage, adapter)
        _parallelize(stage, mesh, context, adapter)
        if experts is not None:
            stage.packings |= experts.packings(stage)
        if uses_fsdp(layout):
            shard_or_replicate(stage, mesh, compute_dtype(precision), experts)
        stages.append(stage)
    return RankModel(
        stages=tuple(stages),
        modules=tuple(stages),
        stage_ids=stage_ids,
        disabled_dropout=disabled,
        experts=experts,
    )


def with_replicas(model: RankModel, mesh: RankMesh) -> RankModel:
    """A model whose parameters have memory, behind DDP where the layout replicates by it."""
    if not uses_ddp(mesh.layout):
        return model
    return replace(model, modules=tuple(wrap_ddp(stage, mesh) for stage in model.stages))


def compute_dtype(precision: PrecisionSpec) -> torch.dtype | None:
    """What matmuls compute in when that is not the parameters' own dtype."""
    return torch.bfloat16 if precision.name == "bf16_mixed" else None


def _build_stage(
    config: Mapping[str, Any], layout: LayoutSpec, stage_id: int, precision: PrecisionSpec
) -> tuple[Stage, dict[str, float]]:
    model, disabled = build_causal_lm(config)
    sizes = layout.layers_of_stages(model.config.num_hidden_layers)
    start = sum(sizes[:stage_id])
    autocast_dtype = None if uses_fsdp(layout) else compute_dtype(precision)
    stage = Stage(
        model,
        family_of(config),
        layers=range(start, start + sizes[stage_id]),
        autocast_dtype=autocast_dtype,
    )
    return stage, disabled


def _parallelize(
    stage: Stage,
    mesh: RankMesh,
    context: ContextParallel | None,
    adapter: AdapterSpec | None,
) -> None:
    layout = mesh.layout
    if layout.tp > 1:
        from meshfit.run.tensor.sharding import apply_tensor_parallel  # noqa: PLC0415

        apply_tensor_parallel(stage, mesh.axis("tp"), sequence_parallel=layout.sp)
    if adapter is not None:
        freeze_all_but_adapters(stage)
    if context is not None:
        apply_context_parallel(stage, context)
    if layout.recompute != "none":
        from meshfit.run.model.recompute import apply_recompute  # noqa: PLC0415

        apply_recompute(stage, layout)


def check_runnable(config: Mapping[str, Any], layout: LayoutSpec) -> None:
    """
    Raises:
        InputError: the runner has no code for a part of this layout, or not with this model.
    """
    for axis, message in _refusals(config, layout):
        raise InputError(f"layout {layout.label}: {axis}: {message}")


def _refusals(config: Mapping[str, Any], layout: LayoutSpec) -> list[tuple[str, str]]:
    refusals = list(context_refusals(config, layout))
    refusals += expert_refusals(config, layout)
    if layout.offload is not None:
        refusals.append(
            (
                "offload",
                "FSDP2 moves states between an accelerator and its host; CPU ranks have them in "
                "host memory as it is; leave it out",
            )
        )
    if (
        layout.schedule in SPLIT_SCHEDULES
        and layout.pp > 1
        and layout.dp_shard > 1
        and layout.zero_stage == 3
    ):
        refusals.append(
            (
                "zero_stage",
                f"{layout.schedule} computes gradients of weights from parameters that are still "
                f"gathered; use zero_stage=2",
            )
        )
    if layout.recompute == "full" and layout.recompute_layers > 1:
        refusals.append(("recompute_layers", "full checkpoints layers one by one; leave it out"))
    if layout.dp_shard > 1 and layout.zero_stage not in (1, 2, 3):
        refusals.append(("zero_stage", f"{layout.zero_stage} shards nothing; use 1, 2 or 3"))
    return refusals
