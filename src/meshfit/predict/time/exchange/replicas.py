"""Whole parameters and replicas: sums of gradients, and what a sharded optimizer sends and gets."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.held import Held
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.compute import PartTime
from meshfit.predict.time.exchange.axes import StateAxes
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.messages.states import (
    Sharing,
    rank_states,
    reduced_gradients,
    scatters_whole_gradients,
    shards_beside_whole_parameters,
    sharings,
    updated_parameters,
    whole_gradient_reductions,
)
from meshfit.predict.time.terms import Terms, add

FloatArray = NDArray[np.float64]


def replication_exchange(
    shape: RankShape, compute: PartTime, group: LayoutGroup, machine: Machine
) -> Terms:
    """Exposed in one step: gradients summed over replicas, and what an optimizer that is sharded
    beside whole parameters gets before its update and sends after it.

    Sums and scatters hide under the last micro-batch's backward (stage 2: under every one's), less
    what the shards' own communication has hidden there already, and gathers of what was updated
    under the first one's forward, where the engine does so. Through FSDP2 in a pipeline the sum
    comes after everything.
    """
    held = rank_states(shape, group)
    layers = max(1, shape.num_layers)
    rooms = _room_of_gradients(compute, group, machine), _room_of_update(compute, group, machine)
    terms: Terms = {}
    for sharing in sharings(group):
        axes = machine.axes.sharing(sharing.axis)
        add(terms, _sums(held, sharing, axes, rooms[0], layers, group, machine))
        if shards_beside_whole_parameters(group).any() and not axes.everyone.is_single:
            add(terms, _beside_whole(held, sharing, axes, rooms, layers, group, machine))
    return terms


def _room_of_gradients(compute: PartTime, group: LayoutGroup, machine: Machine) -> FloatArray:
    columns = group.columns
    asked = group.training.runtime.overlap_gradients
    if not (group.profile.overlaps_gradients if asked is None else asked):
        return np.zeros(len(group))
    comes_last = columns.through_fsdp & (columns.pp > 1)
    room = np.where(comes_last, 0.0, machine.overlap * compute.backward)
    return np.where(columns.shards_parameters, room / 2, room)


def _room_of_update(compute: PartTime, group: LayoutGroup, machine: Machine) -> FloatArray:
    asked = group.training.runtime.overlap_parameters
    hides = group.profile.overlaps_parameters if asked is None else asked
    return machine.overlap * compute.forward * hides


def _shown(seconds: FloatArray, room: FloatArray, layers: int, machine: Machine) -> FloatArray:
    """What shows of an exchange cut into buckets: one layer's at least, which comes last."""
    return np.maximum(seconds / layers, machine.shown(seconds, room))


def _sums(  # noqa: PLR0917  (one argument a thing that hides or is hidden)
    held: Held,
    sharing: Sharing,
    axes: StateAxes,
    room: FloatArray,
    layers: int,
    group: LayoutGroup,
    machine: Machine,
) -> Terms:
    """Sums over replicas of what each rank is left with, once a step."""
    if axes.replicas.is_single:
        return {}
    columns, beside = group.columns, shards_beside_whole_parameters(group)
    scatters = scatters_whole_gradients(group)
    shards = np.where(columns.shards_parameters | (beside & scatters), sharing.shards, 1)
    size = reduced_gradients(held, sharing, group, shards)
    shown = _shown(machine.seconds("all_reduce", size, axes.replicas), room, layers, machine)
    axis = "dp_shard" if sharing.replica_axis == "edp" else "dp_replicate"
    return {f"all_reduce.{axis}": np.where(beside & (not scatters), 0.0, shown)}


def _beside_whole(  # noqa: PLR0917  (one argument a thing that hides or is hidden)
    held: Held,
    sharing: Sharing,
    axes: StateAxes,
    rooms: tuple[FloatArray, FloatArray],
    layers: int,
    group: LayoutGroup,
    machine: Machine,
) -> Terms:
    """Gradients to the ranks that update with them, and updates from these."""
    beside = shards_beside_whole_parameters(group)
    reduced = reduced_gradients(held, sharing, group)
    updated = updated_parameters(held, sharing, group)
    if not scatters_whole_gradients(group):
        summed = machine.seconds("all_reduce", reduced, axes.everyone)
        sent = machine.seconds("broadcast", updated, axes.shards)
        return {
            "all_reduce.dp_shard": np.where(beside, _shown(summed, rooms[0], layers, machine), 0.0),
            "broadcast.dp_shard": np.where(beside, sent, 0.0),
        }
    scattered = machine.seconds("reduce_scatter", reduced, axes.shards)
    scattered = whole_gradient_reductions(group) * _shown(scattered, rooms[0], layers, machine)
    gathered = machine.seconds("all_gather", updated, axes.shards)
    if group.profile.broadcasts_updates:
        start = machine.costs.seconds("broadcast", np.zeros(len(group)), axes.shards)
        gathered = gathered + sharing.shards * start
    return {
        "reduce_scatter.dp_shard": np.where(beside, scattered, 0.0),
        "all_gather.dp_shard": np.where(beside, _shown(gathered, rooms[1], layers, machine), 0.0),
    }
