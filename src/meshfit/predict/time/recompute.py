"""What activation recomputation runs again before a layer's backward, by policy."""

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import RECOMPUTE
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.time.compute import PartTime

FloatArray = NDArray[np.float64]


def recomputed_share(group: LayoutGroup) -> FloatArray:
    """Share of layers whose whole forward runs again: ``full`` all, ``alternate`` every n-th,
    ``block`` the first n of each stage."""
    policy, every = group.candidates.recompute, np.maximum(1, group.candidates.recompute_layers)
    per_stage = max(1.0, float(np.mean(group.pipeline.stage_layers)))
    return np.select(
        [policy == RECOMPUTE.index(name) for name in ("full", "alternate", "block")],
        [np.ones(len(group)), 1.0 / every, np.minimum(1.0, every / per_stage)],
        default=0.0,
    )


def recomputed_s(group: LayoutGroup, time: PartTime) -> FloatArray:
    """Seconds of forward that run again for one layer, on average over the layers of a stage.

    A whole layer is run again but for its last matmul, where the engine stops once it has what
    backward needs. ``selective``: attention without its projections. ``operations``: what the engine
    means by it (``PartTime.operations``).
    """
    policy = group.candidates.recompute
    parts = np.select(
        [policy == RECOMPUTE.index("selective"), policy == RECOMPUTE.index("operations")],
        [time.mixing, time.operations],
        default=0.0,
    )
    whole = time.forward
    if group.profile.recomputes_what_is_needed:
        whole = whole - time.last
    return np.asarray(parts + recomputed_share(group) * whole)
