"""Pipeline parallelism: hidden states from stage to stage, and a tied embedding's gradient."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.messages.pipeline import (
    boundary,
    gathers_boundary,
    holds_tied_copy,
    received_hidden,
    tied_gradient,
)
from meshfit.predict.time.terms import Terms

FloatArray = NDArray[np.float64]


def boundary_s(group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds in which one micro-batch's hidden states pass from one stage to the next."""
    return machine.seconds("send_recv", boundary(group), machine.axes.pp)


def received_s(group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds in which tensor-parallel ranks put together what a stage received in shares."""
    if machine.axes.tp.is_single or not gathers_boundary(group).any():
        return np.zeros(len(group))
    gathered = machine.seconds("all_gather", received_hidden(group), machine.axes.tp)
    return np.where(gathers_boundary(group) & (group.columns.pp > 1), gathered, 0.0)


def hides_transfers(group: LayoutGroup) -> bool:
    """Whether transfers run while the rank that takes them still computes.

    Else it comes to them in its turn: in NCCL's stream a receive waits for all that was issued
    before it.
    """
    return group.pipeline.vpp > 1 and group.profile.hides_pipeline_exchange


def pipeline_exchange(shape: RankShape, group: LayoutGroup, machine: Machine) -> Terms:
    """What a rank waits for per micro-batch: hidden states forward, their gradients back."""
    received = group.pipeline.receives(shape.rank)
    if machine.axes.pp.is_single or not received:
        return {}
    left = machine.contention if hides_transfers(group) else 1.0
    return {
        "send_recv.pp": left * received * boundary_s(group, machine),
        "all_gather.tp": received * received_s(group, machine),
    }


def tied_exchange(shape: RankShape, group: LayoutGroup, machine: Machine) -> Terms:
    """The sum of a tied embedding's gradients once a step, between first and last stage, after both
    are known (Megatron-Core, ``distributed/finalize_model_grads.py``)."""
    if machine.axes.pp.is_single or not holds_tied_copy(shape, group):
        return {}
    return {"all_reduce.pp": machine.seconds("all_reduce", tied_gradient(group), machine.axes.ends)}
