"""Which profile predictions are made with, and which layouts they can be made of."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.job.spec import Job
from meshfit.mesh.candidates import CP_METHODS, OFFLOAD, RECOMPUTE, SCHEDULES, Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.mesh.stage_placement import LOOPED_SCHEDULES
from meshfit.predict.coverage import COVERED_RECOMPUTE, COVERED_SCHEDULES, require_covered
from meshfit.profile import EngineProfile

STAND_IN = "native"
"""The engine whose formulas stand in for those that have none of their own."""

MODELLED_KEYS = {
    "schedule": COVERED_SCHEDULES,
    "recompute": COVERED_RECOMPUTE,
    "cp_method": CP_METHODS,
}
"""Layout key -> its values that the formulas know."""


def estimating_profile(profile: EngineProfile) -> EngineProfile:
    """The profile that memory and time are predicted with: the engine's own where it has a memory
    model, else the native one with the engine's rank order, which nothing here was checked against."""
    if profile.has_memory_model:
        return profile
    stand_in = engine_profile(STAND_IN)
    return replace(stand_in, rank_order=profile.rank_order, memory_checked="nothing")


def stand_in_note(profile: EngineProfile) -> str | None:
    """What a person must know of predictions for this engine; None when they are its own."""
    if profile.has_memory_model:
        return None
    return (
        f"memory and time are predicted as for the {STAND_IN} engine: {profile.name} has no memory "
        f"model of its own yet"
    )


def modelled(candidates: Candidates, num_hidden_layers: int) -> NDArray[np.bool_]:
    """Which layouts the formulas can predict: a layer on each pipeline rank, and on each stage that
    holds neither embedding nor head alone; a schedule and a recompute policy that they know."""
    splits = candidates.stage_splits
    stages = candidates.pp * candidates.vpp
    smallest, smallest_inner = (
        np.array([1 if split is None else min(part(split), default=1) for split in splits])
        for part in (tuple, lambda split: split[1:-1])
    )
    fills = (smallest[candidates.stage_split] >= 1) & (stages <= num_hidden_layers)
    looped = np.isin(candidates.schedule, [SCHEDULES.index(name) for name in LOOPED_SCHEDULES])
    may_be_bare = looped & (candidates.pp > 1) & (stages <= num_hidden_layers + 2)
    has_layers = fills | (may_be_bare & (smallest_inner[candidates.stage_split] >= 1))
    schedules = [SCHEDULES.index(name) for name in COVERED_SCHEDULES]
    recompute = [RECOMPUTE.index(name) for name in COVERED_RECOMPUTE]
    known = np.isin(candidates.schedule, schedules) & np.isin(candidates.recompute, recompute)
    return np.asarray(has_layers & known)


def why_not_modelled(job: Job, layout: LayoutSpec) -> str | None:
    """Why memory and time of a legal layout are absent; None when they can be predicted."""
    if job.profile.kind == "serving":
        return f"{job.profile.name} serves: memory and time of a training step are not its own"
    try:
        require_covered(job.model)
    except InputError as error:
        return str(error)
    for key, known in MODELLED_KEYS.items():
        value = getattr(layout, key)
        if value not in known:
            return f"{key}={value} is not modelled yet"
    if layout.offload not in OFFLOAD:
        return f"offload={layout.offload} is not modelled yet"
    one = Candidates.from_layouts([layout])
    if not modelled(one, job.model.num_hidden_layers)[0]:
        return "pipeline ranks without a layer are not modelled, nor are stages between the ends without one"
    return None
