"""Pipelines whose ranks share processor cores: one that waits leaves its core to another."""

import numpy as np

from meshfit.cluster.topology import Topology
from meshfit.mesh.candidates import Candidates
from meshfit.predict.costs.collectives import FloatArray


def idle_share(candidates: Candidates, topology: Topology) -> FloatArray:
    """Of a pipeline's bubble what is left where ranks share cores; 1 where they do not.

    Predictions give every rank its share of the cores throughout. While a pipeline fills and drains,
    1, 2 ... ``pp - 1`` of its stages work, and cores idle only where those have fewer ranks than
    there are cores: summed up, ``2 sum(max(0, c - a r)) / ((pp - 1) n)`` of the bubble, for c cores,
    n ranks and r ranks a stage.
    """
    cores, pp = topology.shared_cores, candidates.pp
    if cores is None:
        return np.ones(len(candidates))
    ranks = topology.num_accelerators
    working = np.arange(1, int(pp.max()))[:, None]  # [stages at work, layouts]
    idle = np.where(working < pp, np.maximum(0, cores - working * (ranks // pp)), 0).sum(axis=0)
    return np.where(pp > 1, 2 * idle / (np.maximum(1, pp - 1) * ranks), 1.0)
