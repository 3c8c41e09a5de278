"""Sharded parameters: gathers before use, scatters of gradients after it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import Held
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.messages.states import (
    gathered_parameters,
    gathers_once,
    reduced_gradients,
    sharings,
)
from meshfit.predict.time.terms import Terms

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class UnitExchange:
    """Seconds of gathering what is gathered at once, and of scattering its gradients, with nothing
    hidden; 0 where its parameters are not sharded."""

    gather: FloatArray
    reduce: FloatArray


@dataclass(frozen=True, kw_only=True)
class Room:
    """Seconds of a rank in one micro-batch under which it can exchange states: computation of both
    passes and what else runs beside (``Machine.beside``)."""

    forward: FloatArray
    backward: FloatArray


def unit_exchange(held: Held, group: LayoutGroup, machine: Machine) -> UnitExchange:
    """Of one layer, or of the root unit."""
    gather, reduce = np.zeros(len(group)), np.zeros(len(group))
    if not group.columns.shards_parameters.any():
        return UnitExchange(gather=gather, reduce=reduce)
    for sharing in sharings(group):
        ranks = machine.axes.sharing(sharing.axis).shards
        gathered = gathered_parameters(held, sharing, group)
        reduced = reduced_gradients(held, sharing, group)
        gather = gather + machine.seconds("all_gather", gathered, ranks)
        reduce = reduce + machine.seconds("reduce_scatter", reduced, ranks)
    sharded = group.columns.shards_parameters
    return UnitExchange(
        gather=np.where(sharded, gather, 0.0), reduce=np.where(sharded, reduce, 0.0)
    )


def shares_nothing(group: LayoutGroup, machine: Machine) -> bool:
    """Whether no layout shards parameters over more than one rank."""
    axes = [machine.axes.sharing(sharing.axis).shards for sharing in sharings(group)]
    sharded = bool(group.columns.shards_parameters.any())
    return not sharded or all(ranks.is_single for ranks in axes)


def sharding_exchange(
    layers: Sequence[tuple[UnitExchange, int]],
    root: UnitExchange,
    room: Room,
    group: LayoutGroup,
    machine: Machine,
) -> tuple[Terms, Terms]:
    """Exposed gathers and scatters of one rank, per micro-batch and once a step.

    Each layer's gather hides under the layer before it, each scatter under the one after; the
    first gather, the last scatter and those of the root unit (embedding, head) have nothing to
    hide under. Stage 2 gathers once a micro-batch, stage 3 again in backward; where whole
    gradients are kept, scatters come once, at the end, with nothing beside them.
    """
    columns, nothing = group.columns, np.zeros(len(group))
    gathers = sum((count * one.gather for one, count in layers), start=nothing)
    reduces = sum((count * one.reduce for one, count in layers), start=nothing)
    first = layers[0][0] if layers else UnitExchange(gather=nothing, reduce=nothing)
    hidden = machine.shown(gathers, machine.overlap * room.forward)
    forward = root.gather + np.maximum(first.gather, hidden)
    again = np.where(columns.frees_after_forward, gathers, 0.0)
    now = np.where(columns.keeps_gradients, 0.0, reduces)
    unhidden = np.where(columns.frees_after_forward, first.gather, 0.0)
    unhidden = unhidden + np.where(columns.keeps_gradients, 0.0, first.reduce)
    hidden = machine.shown(again + now, machine.overlap * room.backward)
    shown = np.maximum(unhidden, hidden)
    share = np.divide(shown, again + now, out=np.zeros_like(shown), where=again + now > 0)
    root_now = np.where(columns.keeps_gradients, 0.0, root.reduce)
    once = gathers_once(group)
    return {
        "all_gather.dp_shard": np.where(once, 0.0, forward) + share * again,
        "reduce_scatter.dp_shard": share * now + root_now,
    }, {
        "all_gather.dp_shard": np.where(once, forward, 0.0),
        "reduce_scatter.dp_shard": np.where(columns.keeps_gradients, reduces + root.reduce, 0.0),
    }
