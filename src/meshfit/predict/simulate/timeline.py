"""One optimizer step of every layout of a group, played action by action."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedules.play import Played, play
from meshfit.predict.shape.schedules.waves import BACKWARD, FORWARD, INPUT, WEIGHT, Waves, waves_of
from meshfit.predict.simulate.stage import StageCost, stage_cost
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.exchange.pipeline import boundary_s, hides_transfers
from meshfit.predict.time.layer import LayerCost, layer_cost
from meshfit.predict.time.shared_cores import idle_share
from meshfit.predict.time.step import after_backward, rank_compute, waiting_s
from meshfit.predict.time.terms import TERMS, Terms, add, total
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

AFTER_NORM = ("optimizer", "broadcast.dp_shard", "all_gather.dp_shard")
"""What of ``step.after_backward`` follows the norm of all gradients."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One step of N layouts that share a program.

    Attributes:
        played: when every action runs, in the order of ``waves``.
        transfer: seconds from a stage to the next on another rank, [N].
        scatters: seconds after the last backward of each stage in which its rank scatters gradients
            that were whole until then, [actions, N].
        stages: what each stage takes.
        tails: what each rank does after its last backward, by term.
        rank_terms: all that each rank does in the step, by term.
        ends: when each rank's last action has ended, [ranks, N].
        norm_at: when the norm of all gradients is known, which all wait for, [N]; without clipping
            when each rank's own are summed, [ranks, N].
        step_s: when the last rank is done, [N]; stragglers left out.
    """

    group: LayoutGroup
    machine: Machine
    waves: Waves
    played: Played
    transfer: FloatArray
    scatters: FloatArray
    stages: tuple[StageCost, ...]
    tails: tuple[Terms, ...]
    rank_terms: tuple[Terms, ...]
    ends: FloatArray
    norm_at: FloatArray
    step_s: FloatArray

    @cached_property
    def busy_s(self) -> FloatArray:
        """Seconds in which each rank computes or communicates, [ranks, N]."""
        return np.stack([total(terms, len(self.group)) for terms in self.rank_terms])

    def terms(self) -> FloatArray:
        """Seconds by ``TERMS`` of the rank with least idle time, [N, terms]: the bubble is what it
        idles, of which shared cores leave a part (``shared_cores``). Their sum is the step."""
        nothing = np.zeros(len(self.group))
        by_rank = np.array(
            [[terms.get(name, nothing) for name in TERMS] for terms in self.rank_terms]
        )
        busiest = np.argmax(self.busy_s, axis=0)
        terms = by_rank[busiest, :, np.arange(len(self.group))]
        idle = np.maximum(0.0, self.step_s - terms.sum(axis=1))
        left = idle_share(self.group.candidates, self.machine.costs.topology)
        terms[:, TERMS.index("bubble")] = idle * left
        terms[:, TERMS.index("other")] += waiting_s(terms, self.group, self.machine)
        return np.asarray(terms)


def play_step(group: LayoutGroup, machine: Machine) -> Timeline:
    """Play one step of every layout of ``group``, which all have as many micro-batches."""
    pipeline, micro_batches = group.pipeline, int(group.columns.micro_batches[0])
    waves = waves_of(pipeline.schedule, pipeline.pp, pipeline.vpp, micro_batches)
    kinds = dict.fromkeys(kind for chunk in pipeline.chunks for kind, _ in chunk.layers)
    layers = {kind: layer_cost(kind, group, machine) for kind in kinds}
    costs = {
        chunk: stage_cost(chunk, layers, group, machine) for chunk in dict.fromkeys(pipeline.chunks)
    }
    stages = tuple(costs[chunk] for chunk in pipeline.chunks)
    transfer = np.zeros(len(group))
    if not machine.axes.pp.is_single:
        transfer = boundary_s(group, machine)
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
    tails = _tails(group, layers, machine)
    ends = np.stack([played.released[actions[-1]] for actions in waves.by_rank])
    summed = ends + np.stack([_seconds(tail, group, after_norm=False) for tail in tails])
    norm_at = summed if group.training.max_grad_norm is None else summed.max(axis=0)
    done = norm_at + np.stack([_seconds(tail, group, after_norm=True) for tail in tails])
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
    table = np.empty((len(stages), 4, len(group)))
    for number, stage in enumerate(stages):
        forward, backward = (
            total(passed, len(group)) for passed in (stage.forward, stage.backward)
        )
        table[number, FORWARD], table[number, BACKWARD] = forward, backward
        table[number, INPUT], table[number, WEIGHT] = backward - stage.weight, stage.weight
    duration = table[waves.stage, waves.kind]
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


def _seconds(tail: Terms, group: LayoutGroup, *, after_norm: bool) -> FloatArray:
    part = {name: t for name, t in tail.items() if (name in AFTER_NORM) == after_norm}
    return total(part, len(group))


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
        return np.zeros((len(waves.by_rank), len(transfer)))
    under_way = np.where(waves.crosses[:, None], transfer, 0.0)
    waited = np.clip(played.arrived - _free_at(waves, played), 0.0, under_way)
    waited += played.released - played.finish - scatters
    return np.stack([waited[actions].sum(axis=0) for actions in waves.by_rank])
