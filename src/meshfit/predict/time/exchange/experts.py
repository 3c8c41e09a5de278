"""Expert parallelism: dispatch and combine around the experts of a layer."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.exchange.tensor import PassTerms
from meshfit.predict.time.messages.experts import BLOCKS_AROUND_EXPERTS, dispatched, expert_passes
from meshfit.predict.time.terms import Terms, add
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]


def expert_exchange(kind: LayerSpec, group: LayoutGroup, machine: Machine) -> PassTerms:
    """All of it shows: what follows needs the tokens. The fullest rank receives
    ``RuntimeSpec.expert_imbalance`` times an even share. Ranks that share an expert gather its
    tokens and scatter its results."""
    terms = PassTerms(forward={}, backward={}, again={})
    if kind.moe is None or not group.columns.splits_experts.any():
        return terms
    once = _one_pass(kind, group, machine)
    passes = expert_passes(group)
    add(terms.forward, once, passes.forward)
    add(terms.backward, once, passes.backward)
    add(terms.again, once, passes.again)
    return terms


def _one_pass(kind: LayerSpec, group: LayoutGroup, machine: Machine) -> Terms:
    assert kind.moe is not None
    axes, imbalance = machine.axes, group.training.runtime.expert_imbalance
    size, used = dispatched(kind.moe, group), group.columns.splits_experts
    exchanged = machine.seconds("all_to_all", size, axes.ep)
    shared = size.times(group.candidates.etp)
    gathered = machine.seconds("all_gather", shared, axes.etp)
    scattered = machine.seconds("reduce_scatter", shared, axes.etp)
    return {
        "all_to_all.ep": np.where(used, BLOCKS_AROUND_EXPERTS * imbalance * exchanged, 0.0),
        "all_gather.tp": np.where(used, imbalance * gathered, 0.0),
        "reduce_scatter.tp": np.where(used, imbalance * scattered, 0.0),
    }
