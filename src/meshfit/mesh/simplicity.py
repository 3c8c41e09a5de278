"""Which of two layouts is the simpler one: what is left to choose by where speed does not decide."""

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import OFFLOAD, RECOMPUTE, SCHEDULES, Candidates

_AXES = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "ep")
_USUAL = ("1f1b", "interleaved_1f1b")

IntArray = NDArray[np.int64]


def complexities(candidates: Candidates) -> tuple[IntArray, ...]:
    """What makes each layout complicated, the gravest first; less is simpler, [N] each.

    The number of axes in use; virtual stages; stages of unequal numbers of layers that were chosen; the
    ZeRO stage; recomputing; offloading; a schedule other than 1F1B and its interleaved form. Which
    operations or layers are recomputed makes no difference here.
    """
    axes = sum((getattr(candidates, axis) > 1).astype(np.int64) for axis in _AXES)
    uneven = np.array([split is not None for split in candidates.stage_splits])
    usual = np.array([SCHEDULES.index(name) for name in _USUAL])
    return (
        np.asarray(axes),
        candidates.vpp,
        uneven[candidates.stage_split].astype(np.int64),
        candidates.zero_stage,
        (candidates.recompute > RECOMPUTE.index("none")).astype(np.int64),
        (candidates.offload_to > OFFLOAD.index("none")).astype(np.int64),
        (~np.isin(candidates.schedule, usual)).astype(np.int64),
    )
