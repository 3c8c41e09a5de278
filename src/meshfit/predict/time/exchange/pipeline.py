"""Pipeline parallelism: hidden states from stage to stage, and a tied embedding's gradient."""

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.stage_placement import V_SCHEDULES
from meshfit.predict.costs.collectives import AxisGroup, pair_on
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
    """Seconds in which one micro-batch's hidden states pass from one stage to the next, over the slowest
    boundary. Where each rank has a device of its own, that one counts for all: who waits behind it
    works no sooner."""
    return machine.seconds("send_recv", boundary(group), machine.axes.pp)


def boundaries_s(group: LayoutGroup, machine: Machine) -> FloatArray:
    """The same from each pipeline rank to the next, and from the last to the first, [pp, N]: where ranks
    share cores, others work while one waits, so that each boundary counts as what it is."""
    pp, axis = group.pipeline.pp, machine.axes.pp
    size_bytes = boundary(group).bytes * np.ones(len(group))
    return np.stack([_between_s(rank, size_bytes, axis, machine) for rank in range(pp)])


def _between_s(rank: int, size_bytes: FloatArray, axis: AxisGroup, machine: Machine) -> FloatArray:
    """Seconds from a pipeline rank to the next, over the innermost level that holds both. Of the
    neighbours in a domain only the last sends out of it, with the rates that the others leave."""
    seconds, inner = np.zeros(len(size_bytes)), np.ones(len(size_bytes))
    is_open = np.ones(len(size_bytes), dtype=np.bool_)
    for index, here in enumerate(axis.members):
        met = inner * here
        over = is_open & (((rank + 1) % met != 0) | (met >= axis.degree))
        if over.any():
            pair = pair_on(index, axis)
            alone = machine.costs.seconds("send_recv", size_bytes / inner, pair)
            seconds = np.where(over, alone, seconds)
        is_open, inner = is_open & ~over, met
    return seconds


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
        "send_recv.pp": left * received * _usual_boundary_s(group, machine),
        "all_gather.tp": received * received_s(group, machine),
    }


def _usual_boundary_s(group: LayoutGroup, machine: Machine) -> FloatArray:
    """Of the boundaries of a pipeline the mean, which is each where all are alike."""
    if machine.costs.topology.shared_cores is None:
        return boundary_s(group, machine)
    pipeline = group.pipeline
    goes_round = pipeline.vpp > 1 and pipeline.schedule not in V_SCHEDULES
    each = boundaries_s(group, machine)
    return np.asarray((each if goes_round else each[:-1]).mean(axis=0))


def tied_exchange(shape: RankShape, group: LayoutGroup, machine: Machine) -> Terms:
    """The sum of a tied embedding's gradients once a step, between first and last stage, after both
    are known (Megatron-Core, ``distributed/finalize_model_grads.py``)."""
    if machine.axes.pp.is_single or not holds_tied_copy(shape, group):
        return {}
    return {"all_reduce.pp": machine.seconds("all_reduce", tied_gradient(group), machine.axes.ends)}
