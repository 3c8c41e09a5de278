"""What Gloo's collectives send and wait for; CPU ranks use it.

All-reduce and all-gather go round one ring of all ranks (gloo ``allreduce.cc``, ``allgather.cc``),
whatever hosts they lie on: of a host's ranks one sends to the next host and has its link for itself.
Each step of the ring passes on what the step before it brought, so that small messages wait for every
rank on the way.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

GlooCollective = Literal["all_reduce", "all_gather", "all_to_all", "broadcast", "send_recv"]


def sent(kind: GlooCollective, here: FloatArray, inner: FloatArray, degree: IntArray) -> FloatArray:
    """What is sent over a level, as a share of the buffer and at the rate that each rank has of the
    level when all send.

    Args:
        here: members that meet on the level, each of ``inner`` ranks.
    """
    match kind:
        case "all_reduce":
            share = 2 * (degree - 1) / degree / inner
        case "all_gather":
            share = (degree - 1) / degree / inner
        case "all_to_all":
            share = inner * (here - 1) / degree
        case "broadcast" | "send_recv":
            share = np.ones(degree.shape)
    return np.where(here > 1, share, 0.0)


def steps(kind: GlooCollective, degree: IntArray) -> FloatArray:
    """Messages of which each waits for the one before: of a gather all ranks but one, of a sum twice as
    many, of a broadcast the depth of a binomial tree (``broadcast.cc``); else one."""
    match kind:
        case "all_reduce":
            count = 2 * (degree - 1)
        case "all_gather":
            count = degree - 1
        case "broadcast":
            count = np.ceil(np.log2(degree))
        case "all_to_all" | "send_recv":
            count = np.minimum(1, degree - 1)
    return np.asarray(count, dtype=np.float64)
