"""One optimizer step by term, for all layouts that share a pipeline.

Terms are those of ``predict.time.terms``: computation, what recomputation adds, every collective that no
computation hides (``predict.time.exchange``), the pipeline's bubble, and the optimizer. They are the
terms of the slowest pipeline rank, so their sum is the step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import RECOMPUTE
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.pick import largest, picked
from meshfit.predict.shape.schedule import RankShape, bubble_s
from meshfit.predict.time.accumulation import accumulation_s
from meshfit.predict.time.compute import (
    PartTime,
    head_time,
    layer_time,
    optimizer_s,
)
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.exchange.pipeline import pipeline_exchange, tied_exchange
from meshfit.predict.time.exchange.replicas import replication_exchange
from meshfit.predict.time.exchange.sharding import (
    Room,
    sharding_exchange,
    shares_nothing,
    unit_exchange,
)
from meshfit.predict.time.exchange.tensor import embedding_exchange, head_exchange
from meshfit.predict.time.layer import LayerCost, layer_cost
from meshfit.predict.time.messages.states import ends_states, rank_states
from meshfit.predict.time.offload import activations_s, optimizer_on_host_s
from meshfit.predict.time.recompute import recomputed_share
from meshfit.predict.time.shared_cores import shared_pipeline
from meshfit.predict.time.terms import TERMS, Terms, add, computed_s, total
from meshfit.predict.time.waiting import documents_s, has_unequal_documents, straggling_s
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Worked:
    """What pipeline ranks do in a step, whatever the schedule.

    Attributes:
        terms: seconds by term, [N, len(TERMS)], of the rank that takes longest, without idle time.
        slowest_s: of one micro-batch on that rank; all_ranks_s: on all of them together, both with a
            core a rank where ranks share cores.
        bubble_share: of the bubble of those, what there is; not 1 where ranks share cores.
    """

    terms: FloatArray
    slowest_s: FloatArray
    all_ranks_s: FloatArray
    bubble_share: FloatArray

    def take(self, rows: IntArray) -> "Worked":
        return Worked(**{name: values[rows] for name, values in vars(self).items()})


def worked(group: LayoutGroup, machine: Machine) -> Worked:
    """Of every layout."""
    ranks_with_counts = group.pipeline.distinct_ranks
    kinds = {kind for shape, _ in ranks_with_counts for kind, _ in shape.layers}
    layers = {kind: layer_cost(kind, group, machine) for kind in kinds}
    ranks = [rank_cost(shape, layers, group, machine) for shape, _ in ranks_with_counts]
    counts = np.array([count for _, count in ranks_with_counts], dtype=np.float64)
    micro_batches = group.columns.micro_batches
    each = np.stack([total(rank.per_micro_batch, len(group)) for rank in ranks])
    once = np.stack([total(rank.once, len(group)) for rank in ranks])
    slowest = largest(once + micro_batches * each)
    terms = np.zeros((len(group), len(TERMS)))
    for column, name in enumerate(TERMS):
        if any(rank.has(name) for rank in ranks):
            seconds = [rank.term(name, micro_batches) for rank in ranks]
            terms[:, column] = picked(slowest, seconds)
    topology = machine.costs.topology
    if topology.shared_cores is None or group.pipeline.pp == 1:
        return Worked(
            terms=terms,
            slowest_s=picked(slowest, each),
            all_ranks_s=counts @ each,
            bubble_share=np.ones(len(group)),
        )
    computed = np.stack([computed_s(rank.per_micro_batch, len(group)) for rank in ranks])
    shared = shared_pipeline(computed, each - computed, counts, topology)
    slowed = (shared.turn_s - picked(slowest, each - computed)) / picked(slowest, computed)
    for name in ("compute", "recompute"):
        terms[:, TERMS.index(name)] *= slowed
    return Worked(
        terms=terms,
        slowest_s=shared.slowest_s,
        all_ranks_s=shared.all_ranks_s,
        bubble_share=shared.bubble_share,
    )


def with_idle(work: Worked, group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds by term with the pipeline's bubble under each layout's schedule, and with waiting."""
    terms = work.terms.copy()
    idle = bubble_s(
        group.pipeline,
        work.slowest_s,
        work.all_ranks_s,
        group.columns.micro_batches,
        group.candidates.schedule,
    )
    terms[:, TERMS.index("bubble")] = idle * work.bubble_share
    terms[:, TERMS.index("other")] += waiting_s(terms, group, machine)
    return terms


@dataclass(frozen=True, kw_only=True)
class RankCost:
    """Seconds by term of one pipeline rank, for each micro-batch and once a step."""

    per_micro_batch: Mapping[str, FloatArray]
    once: Mapping[str, FloatArray]

    def has(self, name: str) -> bool:
        """Whether it spends anything on a term."""
        return name in self.per_micro_batch or name in self.once

    def term(self, name: str, micro_batches: IntArray) -> FloatArray:
        """Seconds of one term over the whole step."""
        nothing = np.zeros(micro_batches.shape)
        each = self.per_micro_batch.get(name, nothing)
        return np.asarray(self.once.get(name, nothing) + micro_batches * each)


def rank_cost(
    shape: RankShape, layers: Mapping[LayerSpec, LayerCost], group: LayoutGroup, machine: Machine
) -> RankCost:
    """What a pipeline rank does in one step."""
    compute = rank_compute(shape, layers, group, machine)
    forward, backward = _own_exchanges(shape, layers, group, machine)
    each: Terms = {"compute": compute.forward + compute.backward}
    each["compute"] = each["compute"] + accumulation_s(
        rank_states(shape, group), group, machine.rates
    )
    for kind, count in shape.layers:
        add(each, {"recompute": layers[kind].recomputed}, count)
    for exposed in (forward, backward, pipeline_exchange(shape, group, machine)):
        add(each, exposed)
    if group.columns.offloads_activations.any():
        moved = activations_s(shape, group, machine.costs.topology)
        each["other"] = np.maximum(0.0, moved - machine.overlap * each["compute"])
    once = after_backward(shape, compute, group, machine)
    if not shares_nothing(group, machine):
        again = each.get("recompute", 0.0)
        room = Room(
            forward=compute.forward + machine.beside(forward),
            backward=compute.backward + again + machine.beside(backward),
        )
        units = [(layers[kind].states, count) for kind, count in shape.layers]
        root = unit_exchange(ends_states(shape, group), group, machine)
        now, at_end = sharding_exchange(units, root, room, group, machine)
        add(each, now)
        add(once, at_end)
    return RankCost(per_micro_batch=each, once=once)


def rank_compute(
    shape: RankShape, layers: Mapping[LayerSpec, LayerCost], group: LayoutGroup, machine: Machine
) -> PartTime:
    """Computation of one micro-batch on a rank: its layers and its head."""
    parts = [(layers[kind].time, count) for kind, count in shape.layers]
    if shape.chunks[-1].has_head:
        parts.append((head_time(group, machine.rates), 1))
    return PartTime(
        **{
            field.name: sum(
                (count * getattr(part, field.name) for part, count in parts),
                start=np.zeros(len(group)),
            )
            for field in fields(PartTime)
        }
    )


def _own_exchanges(
    shape: RankShape, layers: Mapping[LayerSpec, LayerCost], group: LayoutGroup, machine: Machine
) -> tuple[Terms, Terms]:
    """What layers, embedding and head of a rank expose of their own collectives, in each pass."""
    forward: Terms = {}
    backward: Terms = {}
    for kind, count in shape.layers:
        add(forward, layers[kind].forward, count)
        add(backward, layers[kind].backward, count)
    ends = []
    if shape.chunks[0].has_embedding:
        ends.append(embedding_exchange(group, machine))
    if shape.chunks[-1].has_head:
        ends.append(head_exchange(group, machine))
    for one_way, other_way in ends:
        add(forward, one_way)
        add(backward, other_way)
    return forward, backward


def after_backward(
    shape: RankShape, compute: PartTime, group: LayoutGroup, machine: Machine
) -> Terms:
    """What a rank does once a step after its last backward: sums over replicas as far as they show,
    the optimizer, and sending what it updated."""
    terms = replication_exchange(shape, compute, group, machine)
    add(terms, tied_exchange(shape, group, machine))
    columns, trained = group.columns, rank_states(shape, group).trained
    stepped = trained.on_shard(columns, columns.shards_optimizer)
    held = trained.on_shard(columns, columns.shards_parameters)
    seconds = optimizer_s(stepped, held, group.training, machine.rates)
    if columns.offloads_states.any():
        on_host = optimizer_on_host_s(stepped, group, machine.costs.topology)
        seconds = np.where(columns.offloads_states, on_host, seconds)
    return terms | {"optimizer": seconds}


# Waiting


def waiting_s(terms: FloatArray, group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds of a step that all ranks wait for the slowest, given its other terms."""
    computed = [TERMS.index(name) for name in ("compute", "recompute", "optimizer", "bubble")]
    waited = straggling_s(
        terms.sum(axis=1),
        terms[:, computed].sum(axis=1),
        straggling_share(group, machine),
        group.training,
    )
    if has_unequal_documents(group.training):
        attention_s = _attention_s(group, machine)
        waited = waited + documents_s(
            attention_s, group.columns, group.pipeline.vpp, group.training
        )
    return waited


def _attention_s(group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds of attention without its projections in one micro-batch, on the pipeline rank that
    has most of it; where layers are recomputed, what is run again too."""
    again = recomputed_share(group)
    again = again + (group.candidates.recompute == RECOMPUTE.index("selective"))
    each = {}
    for kind in {kind for shape, _ in group.pipeline.distinct_ranks for kind, _ in shape.layers}:
        time = layer_time(kind, group, machine.rates)
        each[kind] = (1 + again) * time.mixing + time.mixing_backward
    ranks = [
        sum((count * each[kind] for kind, count in shape.layers), start=np.zeros(len(group)))
        for shape, _ in group.pipeline.distinct_ranks
    ]
    return np.asarray(np.max(ranks, axis=0))


def straggling_share(group: LayoutGroup, machine: Machine) -> FloatArray:
    """What stragglers add to a step, as a share of it, with each doubling from one host on."""
    c = group.candidates
    ranks = c.pp * c.dp_replicate * c.dp_shard * c.cp * c.tp
    octaves = np.log2(np.maximum(1.0, ranks / machine.costs.topology.gpus_per_host))
    return np.asarray(machine.straggling * octaves)
