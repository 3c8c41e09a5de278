"""One optimizer step of every layout of a group, played action by action."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedules.play import Played, play
from meshfit.predict.shape.schedules.waves import Waves, waves_of
from meshfit.predict.simulate.on_shared_cores import on_shared_cores
from meshfit.predict.simulate.stage import StageCost, of_actions, stage_cost
from meshfit.predict.simulate.timeline import Timeline, tails_s
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.exchange.pipeline import boundaries_s, boundary_s, hides_transfers
from meshfit.predict.time.layer import LayerCost, layer_cost
from meshfit.predict.time.shared_cores import core_share
from meshfit.predict.time.step import after_backward, rank_compute
from meshfit.predict.time.terms import Terms, add, computing_in, total
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def play_step(group: LayoutGroup, machine: Machine) -> Timeline:
    """Play one step of every layout of ``group``, which all have as many micro-batches."""
    topology = machine.costs.topology
    if topology.shared_cores is None:
        return _played_alone(group, machine)
    with_a_core_each = _played_alone(group, machine, computing=core_share(topology))
    return on_shared_cores(with_a_core_each, topology)


def _played_alone(group: LayoutGroup, machine: Machine, *, computing: float = 1.0) -> Timeline:
    """One step in which no rank takes from another, and computation takes ``computing`` times as long
    as rates have it."""
    pipeline, micro_batches = group.pipeline, int(group.columns.micro_batches[0])
    waves = waves_of(pipeline.schedule, pipeline.pp, pipeline.vpp, micro_batches)
    kinds = dict.fromkeys(kind for chunk in pipeline.chunks for kind, _ in chunk.layers)
    layers = {kind: layer_cost(kind, group, machine) for kind in kinds}
    costs = {
        chunk: stage_cost(chunk, layers, group, machine) for chunk in dict.fromkeys(pipeline.chunks)
    }
    if computing != 1.0:
        costs = {chunk: cost.computing(computing) for chunk, cost in costs.items()}
    stages = tuple(costs[chunk] for chunk in pipeline.chunks)
    transfer = _transfers(waves, group, machine)
    scatters = _scatters(waves, stages, group)
    played = play(
        waves,
        _durations(waves, stages, group),
        transfer,
        ready=_gathered_at(waves, stages, group) if _gathers_ahead(group) else None,
        after=scatters,
        receives_late=not hides_transfers(group),
        waits_for_sends=_waits_for_sends(group, machine),
    )
    exchanged = _exchanged_s(waves, played, transfer, scatters)
    tails = tuple(computing_in(tail, computing) for tail in _tails(group, layers, machine))
    ends = np.stack([played.released[actions[-1]] for actions in waves.by_rank])
    summed = ends + tails_s(tails, len(group), after_norm=False)
    norm_at = summed if group.training.max_grad_norm is None else summed.max(axis=0)
    done = norm_at + tails_s(tails, len(group), after_norm=True)
    return Timeline(
        group=group,
        machine=machine,
        waves=waves,
        played=played,
        transfer=transfer,
        scatters=scatters,
        stages=stages,
        tails=tails,
        rank_terms=_rank_terms(
            waves, played, exchanged=exchanged, stages=stages, tails=tails, group=group
        ),
        ends=ends,
        norm_at=norm_at,
        step_s=done.max(axis=0),
    )


def _transfers(waves: Waves, group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds in which what every action takes comes from another rank, [actions, N]."""
    if machine.axes.pp.is_single:
        return np.zeros((len(waves), len(group)))
    if machine.costs.topology.shared_cores is None:
        return np.where(waves.crosses[:, None], boundary_s(group, machine), 0.0)
    here, there = waves.rank, np.append(waves.rank, 0)[waves.source]
    is_next = np.abs(here - there) == 1
    between = np.where(is_next, np.minimum(here, there), group.pipeline.pp - 1)
    return np.where(waves.crosses[:, None], boundaries_s(group, machine)[between], 0.0)


def _waits_for_sends(group: LayoutGroup, machine: Machine) -> bool:
    """Whether a rank goes on only when what it sent has arrived.

    1F1B sends and receives in pairs that it waits for (torch ``schedules.py::Schedule1F1B``;
    Megatron-Core ``p2p_communication.py``); other schedules send on the side. On CPU ranks nothing
    is on the side.
    """
    return group.pipeline.schedule == "1f1b" or machine.overlap == 0.0


def _gathers_ahead(group: LayoutGroup) -> bool:
    """Whether a rank gathers parameters that stay gathered before their first use comes up: torch's
    runtime for several stages a rank does (``schedules.py::_add_unshard_reshard``)."""
    return group.pipeline.vpp > 1


def _gathered_at(waves: Waves, stages: tuple[StageCost, ...], group: LayoutGroup) -> FloatArray:
    """When the parameters of every first forward are there: a rank gathers stage after stage."""
    ready = np.zeros((len(waves), len(group)))
    for rank in range(group.pipeline.pp):
        gathered = np.zeros(len(group))
        for number in group.pipeline.stages_of(rank):
            gathered = gathered + total(stages[number].first, len(group))
            ready[waves.is_first & (waves.stage == number)] = gathered
    return ready


def _scatters(waves: Waves, stages: tuple[StageCost, ...], group: LayoutGroup) -> FloatArray:
    """Seconds after every action that completes a stage's last backward; the gradient of the
    stage's input is on its way by then."""
    held = np.zeros((len(waves), len(group)))
    for number, stage in enumerate(stages):
        if stage.last:
            held[waves.is_last & (waves.stage == number)] = total(stage.last, len(group))
    return held


def _durations(waves: Waves, stages: tuple[StageCost, ...], group: LayoutGroup) -> FloatArray:
    """Seconds of every action, [actions, N]."""
    duration = of_actions(waves, stages, lambda passed: total(passed, len(group)))
    if not _gathers_ahead(group):
        for action in np.flatnonzero(waves.is_first):
            duration[action] += total(stages[waves.stage[action]].first, len(group))
    return duration


def _tails(
    group: LayoutGroup, layers: Mapping[LayerSpec, LayerCost], machine: Machine
) -> tuple[Terms, ...]:
    """What each rank does once, after its last backward."""
    tails = {
        shape.chunks: after_backward(
            shape, rank_compute(shape, layers, group, machine), group, machine
        )
        for shape, _ in group.pipeline.distinct_ranks
    }
    return tuple(tails[shape.chunks] for shape in group.pipeline.ranks)


def _rank_terms(
    waves: Waves,
    played: Played,
    *,
    exchanged: FloatArray,
    stages: tuple[StageCost, ...],
    tails: tuple[Terms, ...],
    group: LayoutGroup,
) -> tuple[Terms, ...]:
    """All that every rank does, by term."""
    micro_batches = int(group.columns.micro_batches[0])
    free_at = _free_at(waves, played)
    ranks = []
    for rank, tail in enumerate(tails):
        terms: Terms = {"send_recv.pp": exchanged[rank]}
        for number in group.pipeline.stages_of(rank):
            stage = stages[number]
            for each in (stage.forward, stage.backward):
                add(terms, {name: micro_batches * seconds for name, seconds in each.items()})
            add(terms, stage.last)
            if not _gathers_ahead(group):
                add(terms, stage.first)
            elif stage.first:
                first = waves.is_first & (waves.stage == number)
                waited = played.start[first] - np.maximum(played.arrived[first], free_at[first])
                add(terms, {"all_gather.dp_shard": waited[0]})
        add(terms, tail)
        ranks.append(terms)
    return tuple(ranks)


def _free_at(waves: Waves, played: Played) -> FloatArray:
    """When the rank of every action has nothing else to do, [actions, N]."""
    nothing = np.zeros((1, played.start.shape[1]))
    return np.vstack([played.released, nothing])[waves.before]


def _exchanged_s(
    waves: Waves, played: Played, transfer: FloatArray, scatters: FloatArray
) -> FloatArray:
    """Seconds that each rank waits for transfers, [ranks, N]: for its sends where it waits for
    them, and before an action as long as the transfer that the action needs is under way."""
    if not np.any(transfer > 0):
        return np.zeros((len(waves.by_rank), transfer.shape[1]))
    waited = np.clip(played.arrived - _free_at(waves, played), 0.0, transfer)
    waited += played.released - played.finish - scatters
    return np.stack([waited[actions].sum(axis=0) for actions in waves.by_rank])
