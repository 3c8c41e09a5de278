"""``meshfit balance``: what each part of the model takes here, and the stages that follow from it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console

from meshfit.cluster.document import topology_document
from meshfit.errors import InputError, RunError
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.runner import require_runnable
from meshfit.funnel.sweep.sweep_plan import plan_hash
from meshfit.funnel.sweep.tasks import WEIGHTS_SEED
from meshfit.job.spec import Job
from meshfit.launch.orphans import end_orphans
from meshfit.launch.supervise import launch
from meshfit.mesh.spec import LayoutSpec, even_stages
from meshfit.mesh.stage_balance import PartCosts, balanced_by_cost, sums_of_stages
from meshfit.mesh.stage_placement import stages_of_rank
from meshfit.predict.grouped import group_of_one
from meshfit.predict.shape.schedule import in_flight
from meshfit.record.files import write_json_atomically
from meshfit.record.lock import folder_lock
from meshfit.record.schema import PartCost, RunRequest
from meshfit.units import format_bytes
from meshfit.workload.families import read_family
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.reduce import reductions
from meshfit.workload.training import OPTIMIZER_MOMENTS

SCHEMA_VERSION = 1
PASSES = 8
"""Forwards and backwards of one micro-batch; the first is not counted."""
LEAST_LAYERS = 4
"""Layers that are measured at least, so that one alone does not stand for all of its kind."""

_ALIKE = ("none", "selective", "operations", "full")
"""Values of ``recompute`` that treat all layers of a kind alike."""


@dataclass(frozen=True, kw_only=True)
class BalanceEnd:
    """``balance --json``, and where it lies."""

    document: dict[str, Any]
    folder: Path


@dataclass(frozen=True, kw_only=True)
class RankPart:
    """One part on one rank: seconds and bytes of a micro-batch, bytes between steps."""

    seconds: float
    kept_bytes: float
    state_bytes: float


def balance(job: Job, *, out: Path | None, console: Console) -> BalanceEnd:
    """Measures the parts of ``job``'s model in one process here, and spreads its layers over the
    stages of ``job.layout`` by what they take.

    A deep model is cut to as few layers as hold one of every kind.

    Raises:
        InputError: no pipeline in the layout, or one that is not legal or cannot be run.
        RunError: the process failed.
    """
    layout = _pipeline_of(job)
    require_legal(job, layout)
    require_runnable(job)
    key = plan_hash(job)
    root = out or RunFolder.of_plan(f"{job.name} balance", key).root
    measured = _measured_model(job.model)
    with folder_lock(root):
        end_orphans(root)
        console.print(
            f"measuring {len(measured.layers)} of {len(job.model.layers)} layers, {PASSES} micro-batches",
            style="dim",
        )
        parts = _measure(job, measured, layout, root, key)
        document = balance_document(job, layout, measured, parts)
        write_json_atomically(root / "balance.json", document)
    return BalanceEnd(document=document, folder=root)


def _pipeline_of(job: Job) -> LayoutSpec:
    layout = job.layout
    if layout is None or layout.pp == 1:
        raise InputError(
            "balance spreads layers over the stages of a pipeline, and the layout has none: give --layout "
            "pp=2 or more"
        )
    if layout.recompute not in _ALIKE:
        raise InputError(
            f"recompute={layout.recompute} treats layers of one kind differently; balance takes "
            f"{', '.join(_ALIKE)}"
        )
    return layout


def _measured_model(model: ModelSpec) -> ModelSpec:
    """The model cut to its first layers, if these hold every kind there is."""
    kinds = [model.layers.index(kind) for kind in set(model.layers)]
    fewest = max(LEAST_LAYERS, max(kinds) + 1)
    if fewest >= len(model.layers):
        return model
    cut = next(reductions(model.config, fewest_layers=fewest, multiple=1)).config
    small = read_family(model.name, cut)
    same = small.layers == model.layers[: len(small.layers)]
    return small if same and set(small.layers) == set(model.layers) else model


def _measure(
    job: Job, measured: ModelSpec, layout: LayoutSpec, root: Path, key: str
) -> tuple[PartCost, ...]:
    request = RunRequest(
        plan_hash=key,
        candidate="parts",
        purpose="parts",
        model_config=dict(measured.config),
        weights=str(job.weights or root / f"weights-{key[:8]}"),
        layout=LayoutSpec(micro_batch_size=layout.micro_batch_size, recompute=layout.recompute),
        training=replace(job.training, global_batch_size=layout.micro_batch_size),
        device_type=job.topology.accelerator.device_type,
        steps=PASSES,
        warmup_steps=1,
        seed=WEIGHTS_SEED,
        threads_per_rank=job.run.threads_per_rank,
        topology=topology_document(job.topology),
    )
    ended = launch(
        request,
        root / "parts",
        deadline_s=job.run.deadline_s,
        hang_s=job.run.hang_s,
        port=job.run.port,
    )
    if ended.result is None:
        why = ended.failure.message if ended.failure else ended.outcome
        raise RunError(f"the parts of the model could not be measured: {why}")
    return ended.result.parts


def balance_document(
    job: Job, layout: LayoutSpec, measured: ModelSpec, parts: Sequence[PartCost]
) -> dict[str, Any]:
    """What ``balance --json`` prints.

    ``parts[]`` are the measured ones, undivided, with the keys of ``record.schema.PartCost``. ``splits[]`` have
    ``name`` (``even``, ``given`` where the layout says one, ``balanced``), ``stage_layers``,
    ``label`` of the layout with it, ``seconds`` and ``held`` bytes of every stage, ``slowest`` over the
    mean, and whether each ``fits`` the ``budget`` of bytes: a rank's memory less headroom, shared by
    its virtual stages. Stages are those of one rank: tensor and context parallelism are taken to divide
    all parts alike. ``absent`` says why nothing is balanced.
    """
    costs = costs_of_model(
        job.model.layers, measured.layers, [_on_a_rank(one, layout, job) for one in parts]
    )
    flying = _in_flight(job, layout)
    budget = (1 - job.headroom_fraction) * job.topology.accelerator.memory_bytes / layout.vpp
    balanced = balanced_by_cost(costs, flying, most_bytes=budget)
    nothing = (
        f"no split of {costs.num_layers} layers over {layout.num_stages} stages keeps each within "
        f"{format_bytes(budget)}"
    )
    return {
        "schema_version": SCHEMA_VERSION,
        "job": job.name,
        "layout": layout.as_full_json(),
        "label": layout.label,
        "layers": costs.num_layers,
        "measured_layers": len(measured.layers),
        "micro_batch_size": layout.micro_batch_size,
        "parts": [asdict(part) for part in parts],
        "budget": budget,
        "splits": [
            _split(name, replace(layout, stage_layers=split), costs, flying, budget)
            for name, split in _named(layout, costs.num_layers, balanced)
        ],
        "absent": {} if balanced else {"balanced": nothing},
    }


def costs_of_model(
    layers: Sequence[LayerSpec], measured: Sequence[LayerSpec], parts: Sequence[RankPart]
) -> PartCosts:
    """Of all layers, each as the median of the measured ones of its kind."""
    embedding, *of_layers, head = parts
    alike = {
        kind: tuple(part for part, other in zip(of_layers, measured, strict=True) if other == kind)
        for kind in set(measured)
    }
    rows = [(embedding,), *(alike[layer] for layer in layers), (head,)]
    return PartCosts(
        seconds=np.array([median(part.seconds for part in row) for row in rows]),
        kept_bytes=np.array([median(part.kept_bytes for part in row) for row in rows]),
        state_bytes=np.array([median(part.state_bytes for part in row) for row in rows]),
    )


def _on_a_rank(part: PartCost, layout: LayoutSpec, job: Job) -> RankPart:
    """A part as a rank of ``layout`` holds it. ZeRO stage 1 divides what the optimizer keeps, stages 2
    and 3 of the native runner all states; tensor parallelism divides what it can, taken as all."""
    shards = layout.dp_shard * layout.cp
    of_states = shards if layout.zero_stage > 1 else 1
    of_moments = shards if layout.zero_stage > 0 else 1
    moments = OPTIMIZER_MOMENTS[job.training.optimizer] * part.trained_bytes
    states = (part.parameter_bytes + part.trained_bytes) / of_states + moments / of_moments
    return RankPart(
        seconds=part.seconds / (layout.tp * layout.cp),
        kept_bytes=part.kept_bytes / (layout.tp * layout.cp),
        state_bytes=states / layout.tp,
    )


def _in_flight(job: Job, layout: LayoutSpec) -> list[int]:
    """Micro-batches whose activations each stage holds, stages in model order."""
    group = group_of_one(job.model, job.training, job.topology, layout, job.profile)
    flying = [0] * layout.num_stages
    for rank in range(layout.pp):
        held = in_flight(
            group.pipeline, rank, group.columns.micro_batches, group.candidates.schedule
        )
        stages = stages_of_rank(layout.schedule, rank, layout.pp, layout.vpp)
        for stage, kept in zip(stages, held.kept, strict=True):
            flying[stage] = int(kept[0])
    return flying


def _named(
    layout: LayoutSpec, num_layers: int, balanced: tuple[int, ...] | None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "even", even_stages(num_layers, layout.num_stages)
    if layout.stage_layers is not None:
        yield "given", layout.stage_layers
    if balanced is not None:
        yield "balanced", balanced


def _split(
    name: str, layout: LayoutSpec, costs: PartCosts, flying: Sequence[int], budget: float
) -> dict[str, Any]:
    split = layout.layers_of_stages(costs.num_layers)
    seconds = sums_of_stages(costs.seconds, split)
    held = costs.held_bytes(split, flying)
    return {
        "name": name,
        "stage_layers": list(split),
        "label": layout.label,
        "seconds": seconds.tolist(),
        "held": held.tolist(),
        "slowest": float(seconds.max() / seconds.mean()),
        "fits": bool(held.max() <= budget),
    }
