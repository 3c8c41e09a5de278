"""What activation recomputation runs again before a layer's backward, by policy."""

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import RECOMPUTE
from meshfit.predict.compute import PartTime
from meshfit.predict.group import LayoutGroup

FloatArray = NDArray[np.float64]

SAVED_MATMULS = 0.5
"""``operations`` keeps the outputs of every second matmul and of attention."""


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
    backward needs. ``selective``: attention without its projections. ``operations``: half of the matmuls and all
    that is elementwise.
    """
    policy = group.candidates.recompute
    elementwise = np.maximum(0.0, time.forward - time.mixing - time.matmuls)
    parts = np.select(
        [policy == RECOMPUTE.index("selective"), policy == RECOMPUTE.index("operations")],
        [time.mixing, SAVED_MATMULS * time.matmuls + elementwise],
        default=0.0,
    )
    whole = time.forward
    if group.profile.recomputes_what_is_needed:
        whole = whole - time.last
    return np.asarray(parts + recomputed_share(group) * whole)
