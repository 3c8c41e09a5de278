"""Layouts as formulas take them: together, where they share a pipeline and numerics."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import Topology
from meshfit.mesh.candidates import COLUMNS, SCHEDULES, Candidates
from meshfit.mesh.spec import LayoutSpec, even_stages
from meshfit.mesh.stage_placement import V_SCHEDULES
from meshfit.predict.basis import Basis
from meshfit.predict.calibration import formula_only
from meshfit.predict.costs.collectives import CollectiveCosts, contended
from meshfit.predict.costs.rates import rates
from meshfit.predict.shape.columns import step_columns
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.layer_basis import autocast, cast
from meshfit.predict.shape.pick import alike
from meshfit.predict.shape.schedule import Pipeline
from meshfit.predict.time.exchange.machine import Machine, machine_for
from meshfit.predict.time.shared_cores import core_share
from meshfit.predict.time.step import with_idle, worked
from meshfit.profile import EngineProfile
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


CHUNK_LAYOUTS = 49_152
"""Layouts computed at once: the fastest of 6k to 128k; beyond, arrays no longer stay in cache."""


def groups_with_machines(
    candidates: Candidates, basis: Basis
) -> Iterator[tuple[IntArray, LayoutGroup, Machine]]:
    """Rows and layouts that share a pipeline and numerics, each with the machine as they see it."""
    machine_of = _machines(basis)
    for rows, group in layout_groups(candidates, basis):
        yield rows, group, machine_of(group)


def _machines(basis: Basis) -> Callable[[LayoutGroup], Machine]:
    training, topology = basis.training, basis.topology
    rate = rates(
        topology.accelerator,
        training.precision.name,
        constants=basis.constants,
        fp8_recipe=training.runtime.fp8_recipe,
        kernels=basis.profile.kernels,
        core_share=core_share(topology),
    )
    costs = CollectiveCosts(
        topology=contended(topology, training.assume.contention),
        curves=basis.curves,
        constants=basis.constants,
    )
    return lambda group: machine_for(group, rate, costs, basis.constants)


def timed(
    candidates: Candidates, basis: Basis
) -> Iterator[tuple[IntArray, LayoutGroup, FloatArray]]:
    """Rows and layouts that share stages and where they lie, with seconds by term. What a schedule
    does not change is computed once for layouts that differ in nothing else."""
    machine_of = _machines(basis)
    for rows, group in layout_groups(candidates, basis, one_schedule=False):
        few, which = _but_for_schedule(group)
        machine = machine_of(few)
        yield rows, group, with_idle(worked(few, machine).take(which), group, machine)


def _but_for_schedule(group: LayoutGroup) -> tuple[LayoutGroup, IntArray]:
    """One layout of each set that differs in the schedule alone, and the set of every layout."""
    others = (getattr(group.candidates, name) for name in COLUMNS if name != "schedule")
    first, which = alike(others)
    if len(first) == len(group):
        return group, np.arange(len(group))
    some = group.candidates.take(first)
    derived = step_columns(some, group.training, group.profile)
    return replace(group, candidates=some, columns=derived), which


def group_of_one(
    model: ModelSpec,
    training: TrainingSpec,
    topology: Topology,
    layout: LayoutSpec,
    profile: EngineProfile,
) -> LayoutGroup:
    """One layout as the formulas take it, for whoever asks them one by one."""
    basis = Basis(
        model=model,
        training=training,
        topology=topology,
        profile=profile,
        calibration=formula_only(topology, profile.name),
    )
    ((_, group),) = layout_groups(Candidates.from_layouts([layout]), basis)
    return group


def layout_groups(
    candidates: Candidates, basis: Basis, *, one_schedule: bool = True
) -> Iterator[tuple[IntArray, LayoutGroup]]:
    """Rows and layouts that share a pipeline and numerics, at most ``CHUNK_LAYOUTS`` at once."""
    precision = basis.training.precision
    for rows, pipeline, uses_cast in _shared_pipelines(candidates, basis, one_schedule):
        for start in range(0, len(rows), CHUNK_LAYOUTS):
            chunk = rows[start : start + CHUNK_LAYOUTS]
            some = candidates.take(chunk)
            yield (
                chunk,
                LayoutGroup(
                    model=basis.model,
                    training=basis.training,
                    profile=basis.profile,
                    pipeline=pipeline,
                    numerics=cast(precision) if uses_cast else autocast(precision),
                    candidates=some,
                    columns=step_columns(some, basis.training, basis.profile),
                    accelerator=basis.topology.accelerator,
                ),
            )


def _shared_pipelines(
    candidates: Candidates, basis: Basis, one_schedule: bool
) -> Iterator[tuple[IntArray, Pipeline, bool]]:
    if not len(candidates):
        return
    uses_cast = step_columns(candidates, basis.training, basis.profile).casts
    parts = (
        candidates.pp,
        candidates.vpp,
        candidates.schedule if one_schedule else _ALIKE_PLACED[candidates.schedule],
        candidates.stage_split,
        uses_cast.astype(np.int64),
    )
    radices = [int(part.max()) + 1 for part in parts]
    codes, group_of = np.unique(np.ravel_multi_index(parts, radices), return_inverse=True)
    by_group = np.argsort(group_of, kind="stable")
    ends = np.cumsum(np.bincount(group_of, minlength=len(codes)))
    for code, rows in zip(codes, np.split(by_group, ends[:-1]), strict=True):
        pp, vpp, schedule, split, is_cast = (int(part) for part in np.unravel_index(code, radices))
        stage_layers = candidates.stage_splits[split]
        pipeline = Pipeline(
            pp=pp,
            vpp=vpp,
            schedule=SCHEDULES[schedule],
            stage_layers=stage_layers or even_stages(basis.model.num_hidden_layers, pp * vpp),
            model=basis.model,
        )
        yield rows, pipeline, bool(is_cast)


_ALIKE_PLACED = np.array(
    [SCHEDULES.index(V_SCHEDULES[0] if name in V_SCHEDULES else SCHEDULES[0]) for name in SCHEDULES]
)
"""For each schedule one that places stages on ranks in the same way: in a V, or round the ranks."""
