"""Expert parallelism: dispatch and combine around the experts of a layer."""

import numpy as np

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.exchange.tensor import PassTerms
from meshfit.predict.time.messages.experts import expert_exchanges
from meshfit.predict.time.messages.message import TERM_AXES
from meshfit.predict.time.terms import add
from meshfit.workload.model import LayerSpec


def expert_exchange(kind: LayerSpec, group: LayoutGroup, machine: Machine) -> PassTerms:
    """All of it shows: what follows needs the tokens. The fullest rank receives
    ``RuntimeSpec.expert_imbalance`` times an even share."""
    terms = PassTerms(forward={}, backward={}, again={})
    for one in expert_exchanges(kind, group):
        axis = machine.axes.ep if one.axis == "ep" else machine.axes.etp
        load = group.training.runtime.expert_imbalance if one.by_load else 1.0
        seconds = load * machine.seconds(one.collective, one.size, axis)
        used = np.where(group.columns.splits_experts, seconds, 0.0)
        term = {f"{one.collective}.{TERM_AXES.get(one.axis, one.axis)}": used}
        add(terms.forward, term, one.passes.forward)
        add(terms.backward, term, one.passes.backward)
        add(terms.again, term, one.passes.again)
    return terms
