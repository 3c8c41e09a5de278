"""What one virtual stage takes in each of its passes, by term."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import Chunk, RankShape
from meshfit.predict.shape.schedules.waves import BACKWARD, FORWARD, INPUT, WEIGHT, Waves
from meshfit.predict.simulate.streams import Streams, Unit, run_streams
from meshfit.predict.time.accumulation import accumulation_s
from meshfit.predict.time.compute import PartTime, head_time
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.exchange.pipeline import received_s
from meshfit.predict.time.exchange.sharding import shares_nothing, unit_exchange
from meshfit.predict.time.exchange.tensor import embedding_exchange, head_exchange
from meshfit.predict.time.layer import LayerCost
from meshfit.predict.time.messages.states import ends_states, gathers_once, rank_states
from meshfit.predict.time.terms import Terms, add, computing_in, merged, total
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """One virtual stage, in seconds by term (``step.TERMS``), for N layouts.

    Attributes:
        forward, backward: of one micro-batch.
        weight: what of the backward's computation makes gradients of weights alone.
        first, last: what the first forward and the last backward have beyond the others: gathers
            and scatters of states that stay whole between them.
        forward_streams, backward_streams: layer by layer, where states are sharded.
    """

    forward: Terms
    backward: Terms
    weight: FloatArray
    first: Terms = field(default_factory=dict)
    last: Terms = field(default_factory=dict)
    forward_streams: Streams | None = None
    backward_streams: Streams | None = None

    def computing(self, factor: float) -> "StageCost":
        """The same where computation takes ``factor`` times as long."""
        return replace(
            self,
            forward=computing_in(self.forward, factor),
            backward=computing_in(self.backward, factor),
            weight=self.weight * factor,
        )


def of_actions(
    waves: Waves, stages: Sequence[StageCost], seconds: Callable[[Terms], FloatArray]
) -> FloatArray:
    """What ``seconds`` says of the terms of every action, [actions, N]."""
    table = np.stack([_by_kind(stage, seconds) for stage in stages])
    return np.asarray(table[waves.stage, waves.kind])


def _by_kind(stage: StageCost, seconds: Callable[[Terms], FloatArray]) -> FloatArray:
    """[kinds, N]."""
    of_kind = np.empty((4, len(stage.weight)))
    of_kind[FORWARD], of_kind[BACKWARD] = seconds(stage.forward), seconds(stage.backward)
    of_kind[INPUT], of_kind[WEIGHT] = of_kind[BACKWARD] - stage.weight, stage.weight
    return of_kind


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A layer or the head: both passes, and the states that it shards."""

    time: PartTime
    forward: Terms
    backward: Terms
    recomputed: FloatArray
    gather: FloatArray
    reduce: FloatArray


def stage_cost(
    chunk: Chunk, layers: Mapping[LayerSpec, LayerCost], group: LayoutGroup, machine: Machine
) -> StageCost:
    """Costs of a virtual stage; its layers of a kind stand together, in the model's order of kinds."""
    parts = _parts(chunk, layers, group, machine)
    forward: Terms = {}
    backward: Terms = {}
    for part in parts:
        add(forward, {"compute": part.time.forward, **part.forward})
        add(backward, {"compute": part.time.backward, "recompute": part.recomputed})
        add(backward, part.backward)
    if chunk.has_embedding:
        one_way, other_way = embedding_exchange(group, machine)
        add(forward, one_way)
        add(backward, other_way)
    held = rank_states(RankShape(rank=0, chunks=(chunk,)), group)
    add(backward, {"compute": accumulation_s(held, group, machine.rates)})
    received = {"all_gather.tp": received_s(group, machine)}
    add(forward, received, 0.0 if chunk.has_embedding else 1.0)
    add(backward, received, 0.0 if chunk.has_head else 1.0)
    weight = sum((part.time.weight for part in parts), start=np.zeros(len(group)))
    whole = StageCost(forward=forward, backward=backward, weight=weight)
    if shares_nothing(group, machine) or not parts:
        return whole
    return _with_sharding(whole, chunk, parts, group, machine)


def _parts(
    chunk: Chunk, layers: Mapping[LayerSpec, LayerCost], group: LayoutGroup, machine: Machine
) -> list[_Part]:
    parts = [
        _Part(
            time=cost.time,
            forward=cost.forward,
            backward=cost.backward,
            recomputed=cost.recomputed,
            gather=cost.states.gather,
            reduce=cost.states.reduce,
        )
        for kind, count in chunk.layers
        for cost in [layers[kind]] * count
    ]
    if chunk.has_head:
        forward, backward = head_exchange(group, machine)
        nothing = np.zeros(len(group))
        head = _Part(
            time=head_time(group, machine.rates),
            forward=forward,
            backward=backward,
            recomputed=nothing,
            gather=nothing,
            reduce=nothing,
        )
        parts.append(head)
    return parts


def _with_sharding(
    whole: StageCost, chunk: Chunk, parts: list[_Part], group: LayoutGroup, machine: Machine
) -> StageCost:
    """Add what gathers and scatters of sharded states expose.

    Stage 2 gathers once a micro-batch, stage 3 again in backward. Embedding and head are gathered
    together before the first layer and scattered after the last, with nothing to hide under. Where
    parameters stay gathered or gradients whole over the step, that is the first forward's and the
    last backward's.
    """
    columns = group.columns
    ends = ends_states(RankShape(rank=0, chunks=(chunk,)), group)
    root = unit_exchange(ends, group, machine)
    nothing = np.zeros(len(group))
    forward = _run([_forward_unit(part, group, machine) for part in parts], group, machine)
    gathered = root.gather + forward.gather_wait + _lost(forward, machine)
    units = [_backward_unit(part, group, machine) for part in reversed(parts)]
    backward = _run(units, group, machine)
    reduces = sum((part.reduce for part in parts), start=nothing) + root.reduce
    once = gathers_once(group)
    keeps = columns.keeps_gradients
    return StageCost(
        forward=merged(whole.forward, {"all_gather.dp_shard": np.where(once, 0.0, gathered)}),
        backward=merged(
            whole.backward,
            {
                "all_gather.dp_shard": backward.gather_wait + _lost(backward, machine),
                "reduce_scatter.dp_shard": np.where(keeps, 0.0, backward.reduce_wait + root.reduce),
            },
        ),
        weight=whole.weight,
        first={"all_gather.dp_shard": np.where(once, gathered, 0.0)},
        last={"reduce_scatter.dp_shard": np.where(keeps, reduces, 0.0)},
        forward_streams=forward,
        backward_streams=backward,
    )


def _run(units: list[Unit], group: LayoutGroup, machine: Machine) -> Streams:
    prefetched = group.profile.live_unsharded_blocks - 1
    overlap = machine.overlap if prefetched else 0.0
    return run_streams(units, overlap=overlap, prefetched=max(1, prefetched))


def _forward_unit(part: _Part, group: LayoutGroup, machine: Machine) -> Unit:
    beside = machine.beside(part.forward)
    return Unit(
        compute=part.time.forward + beside,
        exposed=total(part.forward, len(group)) - beside,
        gather=part.gather,
        reduce=np.zeros(len(group)),
    )


def _backward_unit(part: _Part, group: LayoutGroup, machine: Machine) -> Unit:
    columns, beside = group.columns, machine.beside(part.backward)
    return Unit(
        compute=part.time.backward + part.recomputed + beside,
        exposed=total(part.backward, len(group)) - beside,
        gather=np.where(columns.frees_after_forward, part.gather, 0.0),
        reduce=np.where(columns.keeps_gradients, 0.0, part.reduce),
    )


def _lost(streams: Streams, machine: Machine) -> FloatArray:
    """Computation lost beside the communication that it hides."""
    spans = (*streams.gathers, *streams.reduces)
    carried = sum((span.end - span.start for span in spans), start=np.zeros_like(spans[0].end))
    shown = streams.gather_wait + streams.reduce_wait
    return np.asarray(machine.contention * np.maximum(0.0, carried - shown))
