"""What one layer takes for one micro-batch on one rank."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.time.compute import PartTime, layer_time
from meshfit.predict.time.exchange.context import context_exchange
from meshfit.predict.time.exchange.experts import expert_exchange
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.exchange.sharding import UnitExchange, unit_exchange
from meshfit.predict.time.exchange.tensor import block_exchange
from meshfit.predict.time.messages.states import layer_states
from meshfit.predict.time.recompute import recomputed_s
from meshfit.predict.time.terms import Terms, merged
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer for one micro-batch on one rank.

    Attributes:
        time: its computation.
        recomputed: seconds of forward run again before its backward.
        forward, backward: seconds by term of what its own collectives expose; that of the forward
            that is run again belongs to the backward.
        states: seconds of gathering and scattering what is sharded of it.
    """

    time: PartTime
    recomputed: FloatArray
    forward: Terms
    backward: Terms
    states: UnitExchange


def layer_cost(kind: LayerSpec, group: LayoutGroup, machine: Machine) -> LayerCost:
    """What one layer takes, for every layout of ``group``."""
    time = layer_time(kind, group, machine.rates)
    exchanges = (
        block_exchange(kind, group, machine, time),
        context_exchange(kind, group, machine, time),
        expert_exchange(kind, group, machine),
    )
    return LayerCost(
        time=time,
        recomputed=recomputed_s(group, time),
        forward=merged(*(each.forward for each in exchanges)),
        backward=merged(*(terms for each in exchanges for terms in (each.backward, each.again))),
        states=unit_exchange(layer_states(kind, group), group, machine),
    )
