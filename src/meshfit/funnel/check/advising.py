"""What to change of a layout that is not legal or does not fit."""

from collections.abc import Sequence
from typing import Any

from meshfit.funnel.space.calibrating import basis_of
from meshfit.job.spec import Job
from meshfit.mesh.changes import Change, legal_changes, single_changes
from meshfit.mesh.facts import facts_of
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.advice import FittingChange, changes_that_fit
from meshfit.predict.estimates import Estimates
from meshfit.units import format_bytes, format_percent

_BESIDE = {"vpp": "pp", "schedule": "pp", "sp": "tp", "zero_stage": "dp_shard", "etp": "ep"}
"""Policy -> the axis without which it means nothing, so that no bound of it holds."""


def changes_to_be_legal(job: Job, layout: LayoutSpec) -> list[Change]:
    """Single changes that make an illegal layout legal, the nearest first; often none."""
    facts = facts_of(model=job.model, training=job.training, topology=job.topology)
    return legal_changes(layout, _changes(job, layout), facts, job.profile)


def changes_to_fit(job: Job, layout: LayoutSpec) -> Sequence[FittingChange]:
    """Single legal changes after which a legal layout fits, the fastest first."""
    return changes_that_fit(
        layout,
        _changes(job, layout),
        basis_of(job),
        rules=job.profile,
        headroom_fraction=job.headroom_fraction,
    )


def _changes(job: Job, layout: LayoutSpec) -> list[Change]:
    """Single changes to values that the job's ``search`` leaves open."""
    changes = single_changes(
        layout,
        num_ranks=job.topology.num_accelerators,
        num_hidden_layers=job.model.num_hidden_layers,
        profile=job.profile,
    )
    bounds = {name: values for name, values in vars(job.search).items() if values is not None}
    return [
        change
        for change in changes
        if all(
            getattr(change.layout, name) in (*values, getattr(layout, name))
            for name, values in bounds.items()
            if name not in _BESIDE or getattr(change.layout, _BESIDE[name]) > 1
        )
    ]


def legal_change(change: Change) -> dict[str, Any]:
    """One of ``changes[]`` in JSON."""
    return {"words": change.words, "layout": change.layout.as_json()}


def fitting_change(change: FittingChange) -> dict[str, Any]:
    """One of ``changes[]`` in JSON; ``memory_high`` in bytes, ``slowdown`` of a step."""
    return {
        "words": change.words,
        "layout": change.layout.as_json(),
        "memory_high": change.memory_high_bytes,
        "slowdown": change.slowdown,
    }


def what_is_needed(job: Job, layout: LayoutSpec, estimates: Estimates, index: int) -> str:
    """``stage 0 needs 84.2 GiB to 90.1 GiB of 79.1 GiB; with 10% headroom at most 71.2 GiB may be``."""
    capacity_bytes, headroom = job.topology.accelerator.memory_bytes, job.headroom_fraction
    rank = int(estimates.worst_rank[index])
    where = "a rank" if layout.pp == 1 else f"pipeline rank {rank}"
    if layout.pp > 1 and layout.vpp == 1:
        where = f"stage {rank}"
    middle, high = (
        float(bound[index])
        for bound in (estimates.memory_middle_bytes, estimates.memory_high_bytes)
    )
    return (
        f"{where} needs {format_bytes(middle)}, up to {format_bytes(high)}, of "
        f"{format_bytes(capacity_bytes)}; with {format_percent(headroom)} headroom at most "
        f"{format_bytes((1 - headroom) * capacity_bytes)} may be"
    )
