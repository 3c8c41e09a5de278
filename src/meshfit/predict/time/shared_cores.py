"""Pipelines whose ranks share processor cores: one that waits leaves its core to another.

Rates give every rank its share of the cores, as if all computed throughout. Here each has a core of
its own at first, which is how long a stage takes while others wait, and all take longer while more of
them compute than there are cores.
"""

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import Topology

FloatArray = NDArray[np.float64]


def core_share(topology: Topology) -> float:
    """Of a core, what each rank has while all of them compute; 1 where they do not share cores."""
    if topology.shared_cores is None:
        return 1.0
    return min(1.0, topology.shared_cores / topology.num_accelerators)


@dataclass(frozen=True, kw_only=True)
class SharedPipeline:
    """One micro-batch in a pipeline whose ranks share cores, for N layouts.

    Attributes:
        turn_s: seconds from one micro-batch to the next on the slowest rank, of a full pipeline.
        slowest_s: of one micro-batch on the slowest rank with a core a rank; all_ranks_s: on all of
            them together.
        bubble_share: by how much the bubble of those is longer or shorter here.
    """

    turn_s: FloatArray
    slowest_s: FloatArray
    all_ranks_s: FloatArray
    bubble_share: FloatArray


def shared_pipeline(
    computed_s: FloatArray, waited_s: FloatArray, counts: FloatArray, topology: Topology
) -> SharedPipeline:
    """Of a pipeline of two stages or more on cores that its ranks share.

    A rank computes in a share ``p`` of its time and waits in the rest. Of ``a`` stages at work so many
    compute at once as of ``a`` independent trials succeed, and while ``k`` of them do, all take
    ``max(1, k / c)`` times as long where ``c`` stages have a core for each of their ranks. A pipeline
    of ``n`` ranks that fills and drains has each of 1, 2 ... ``n - 1`` stages at work for the time of
    two micro-batches, beside what is counted of full work.

    Args:
        computed_s, waited_s: of one micro-batch on every kind of rank, the former at a rank's share
            of the cores, [kinds, N].
        counts: pipeline ranks of each kind.
    """
    assert topology.shared_cores is not None
    stages = int(counts.sum())
    alone = core_share(topology) * computed_s
    each = alone + waited_s
    slowest_s = each.max(axis=0)
    computing = np.clip(counts @ alone / (stages * slowest_s), 0.0, 1.0)
    at_once = topology.shared_cores * stages / topology.num_accelerators
    slowed = [_slowed(working, computing, at_once) for working in range(1, stages + 1)]
    part = sum(slowed[:-1], start=np.zeros_like(computing))
    return SharedPipeline(
        turn_s=slowest_s * slowed[-1],
        slowest_s=slowest_s,
        all_ranks_s=counts @ each,
        bubble_share=2 * part / (stages - 1) - slowed[-1],
    )


def _slowed(working: int, computing: FloatArray, at_once: float) -> FloatArray:
    """How many times as long all takes, expected, with so many stages at work."""
    slowed = np.zeros_like(computing)
    for k in range(working + 1):
        chance = comb(working, k) * computing**k * (1 - computing) ** (working - k)
        slowed += chance * max(1.0, k / at_once)
    return slowed
