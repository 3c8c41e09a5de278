"""One optimizer step by term, for all layouts that share a pipeline.

Terms are those of ``meshfit.breakdown.TimeBreakdown``: computation, what recomputation adds, every
collective that no computation hides as ``COLLECTIVE.AXIS``, the pipeline's bubble, and the
optimizer. They are the terms of the slowest pipeline rank, so their sum is the step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import CP_METHODS, RECOMPUTE
from meshfit.predict.collectives import AxisGroup, CollectiveCosts
from meshfit.predict.columns import strides
from meshfit.predict.compute import (
    FLASH_BACKWARD,
    PartTime,
    Rates,
    head_time,
    layer_time,
    optimizer_s,
)
from meshfit.predict.constants import TimeConstants, shipped_constants
from meshfit.predict.group import LayoutGroup
from meshfit.predict.messages import (
    BLOCKS_AROUND_EXPERTS,
    CONTEXT_PASSES,
    boundary_bytes,
    dispatched_bytes,
    gathered_hidden_bytes,
    gathered_parameters_bytes,
    gradients_bytes,
    heads_bytes,
    hidden_bytes,
    keys_bytes,
    logits_bytes,
    tensor_exchanges,
    updated_parameters_bytes,
)
from meshfit.predict.offload import activations_s, optimizer_on_host_s
from meshfit.predict.parameters import ends_parameters, layer_parameters, on_rank, rank_parameters
from meshfit.predict.pick import picked
from meshfit.predict.recompute import recomputed_s, recomputed_share
from meshfit.predict.schedule import RankShape, bubble_s
from meshfit.predict.tables.chips import CHIPS
from meshfit.predict.waiting import documents_s, has_unequal_documents, straggling_s
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

EXPOSED_TERMS: tuple[str, ...] = (
    "all_reduce.tp",
    "all_gather.tp",
    "reduce_scatter.tp",
    "send_recv.cp",
    "all_gather.cp",
    "all_to_all.cp",
    "all_gather.dp_shard",
    "reduce_scatter.dp_shard",
    "all_reduce.dp_shard",
    "broadcast.dp_shard",
    "all_reduce.dp_replicate",
    "all_to_all.ep",
    "send_recv.pp",
)
OWN_TERMS: tuple[str, ...] = ("compute", "recompute", "bubble", "optimizer", "other")
TERMS: tuple[str, ...] = (*OWN_TERMS, *EXPOSED_TERMS)

Terms = dict[str, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Where the ranks of every axis lie.

    ``states`` are the ranks that shard states, ``replicas`` those that hold equal shards, and
    ``gradients`` those over which DDP sums gradients (all data-parallel ranks).
    """

    tp: AxisGroup
    cp: AxisGroup
    pp: AxisGroup
    ep: AxisGroup
    states: AxisGroup
    replicas: AxisGroup
    gradients: AxisGroup


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a group of layouts runs on.

    Attributes:
        overlap: share of computation under which communication can hide.
        contention: computation lost beside hidden communication, as a share of the latter's time.
        tensor_overlap: share of a tensor-parallel collective that hides when it is cut into pieces.
        straggling: by how much a step grows with each doubling of hosts.
    """

    rates: Rates
    costs: CollectiveCosts
    overlap: float
    axes: Axes
    contention: float = 0.0
    tensor_overlap: float = 0.0
    straggling: float = 0.0


def place_axes(group: LayoutGroup, costs: CollectiveCosts) -> Axes:
    """Place the ranks of every axis on the topology in the engine's rank order."""
    columns, apart = group.columns, strides(group.candidates, group.profile)
    sharding = np.minimum(apart["dp_shard"], apart["cp"])
    all_data = np.minimum(sharding, apart["dp_replicate"])
    return Axes(
        tp=costs.place(columns.tp, apart["tp"]),
        cp=costs.place(columns.cp, apart["cp"]),
        pp=costs.place(columns.pp, apart["pp"]),
        ep=costs.place(group.candidates.ep, _expert_stride(group, apart)),
        states=costs.place(columns.state_shard, sharding),
        replicas=costs.place(
            columns.replicas, np.where(columns.shards_optimizer, apart["dp_replicate"], all_data)
        ),
        gradients=costs.place(columns.replicas * columns.state_shard, all_data),
    )


def _expert_stride(group: LayoutGroup, apart: Mapping[str, IntArray]) -> IntArray:
    """Expert-parallel ranks are neighbours inside dp_shard x cp x tp, whole experts of them."""
    c = group.candidates
    inner = np.minimum(np.minimum(apart["dp_shard"], apart["cp"]), apart["tp"])
    if "tp" not in group.profile.expert_fold:
        inner = np.minimum(apart["dp_shard"], apart["cp"])
    return np.asarray(inner * c.etp)


def machine_for(
    group: LayoutGroup,
    rates: Rates,
    costs: CollectiveCosts,
    constants: TimeConstants | None = None,
) -> Machine:
    """The machine as ``group`` sees it. CPU ranks hide nothing: they carry out collectives too.

    What is known of real steps holds for accelerators of the catalogue; on others nothing is lost.
    """
    accelerator = costs.topology.accelerator
    axes = place_axes(group, costs)
    if accelerator.name not in CHIPS:
        is_cuda = accelerator.device_type == "cuda"
        overlap = group.profile.overlap_fraction if is_cuda else 0.0
        return Machine(rates=rates, costs=costs, overlap=overlap, axes=axes)
    known = constants or shipped_constants()
    return Machine(
        rates=rates,
        costs=costs,
        overlap=group.profile.overlap_fraction * known["overlap.data"],
        axes=axes,
        contention=known["contention"],
        tensor_overlap=known["overlap.tensor"],
        straggling=known["straggler.per_octave"],
    )


def step_terms(group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds by term, [N, len(TERMS)], of the pipeline rank that takes longest."""
    ranks_with_counts = group.pipeline.distinct_ranks
    kinds = {kind for shape, _ in ranks_with_counts for kind, _ in _layers(shape)}
    layers = {kind: layer_cost(kind, group, machine) for kind in kinds}
    ranks = [_rank(shape, layers, group, machine) for shape, _ in ranks_with_counts]
    counts = np.array([count for _, count in ranks_with_counts], dtype=np.float64)
    micro_batches = group.columns.micro_batches
    each = np.stack([_total(rank.per_micro_batch) for rank in ranks])
    once = np.stack([_total(rank.once) for rank in ranks])
    slowest = np.argmax(once + micro_batches * each, axis=0)
    terms = np.zeros((len(group), len(TERMS)))
    for column, name in enumerate(TERMS):
        if any(rank.has(name) for rank in ranks):
            seconds = [rank.term(name, micro_batches) for rank in ranks]
            terms[:, column] = picked(slowest, seconds)
    slowest_s = picked(slowest, each)
    terms[:, TERMS.index("bubble")] = bubble_s(
        group.pipeline, slowest_s, counts @ each, micro_batches
    )
    terms[:, TERMS.index("other")] += waiting_s(terms, group, machine)
    return terms


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
    for kind in {kind for shape, _ in group.pipeline.distinct_ranks for kind, _ in _layers(shape)}:
        time = layer_time(kind, group, machine.rates)
        each[kind] = (1 + again) * time.mixing + time.mixing_backward
    ranks = [
        sum((count * each[kind] for kind, count in _layers(shape)), start=np.zeros(len(group)))
        for shape, _ in group.pipeline.distinct_ranks
    ]
    return np.asarray(np.max(ranks, axis=0))


def straggling_share(group: LayoutGroup, machine: Machine) -> FloatArray:
    """What stragglers add to a step, as a share of it, with each doubling from one host on."""
    c = group.candidates
    ranks = c.pp * c.dp_replicate * c.dp_shard * c.cp * c.tp
    octaves = np.log2(np.maximum(1.0, ranks / machine.costs.topology.gpus_per_host))
    return np.asarray(machine.straggling * octaves)


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer for one micro-batch on one rank.

    Attributes:
        time: its computation.
        recomputed: seconds of forward run again before its backward.
        forward, backward: seconds by term of what its own collectives expose.
        again: those of the forward that is run again.
        gather, reduce: seconds of gathering its sharded parameters once, and of scattering its
            gradients, with nothing hidden.
    """

    time: PartTime
    recomputed: FloatArray
    forward: Terms
    backward: Terms
    again: Terms
    gather: FloatArray
    reduce: FloatArray


@dataclass(frozen=True, kw_only=True)
class _Rank:
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


def _layers(shape: RankShape) -> list[tuple[LayerSpec, int]]:
    return [pair for chunk in shape.chunks for pair in chunk.layers]


def _total(terms: Mapping[str, FloatArray]) -> FloatArray:
    return np.asarray(sum(terms.values()))


def _add(terms: Terms, more: Mapping[str, FloatArray], factor: float | FloatArray = 1.0) -> None:
    for name, seconds in more.items():
        terms[name] = terms.get(name, 0.0) + factor * seconds


def layer_cost(kind: LayerSpec, group: LayoutGroup, machine: Machine) -> LayerCost:
    """What one layer takes, for every layout of ``group``."""
    parameters = on_rank(layer_parameters(kind, group.model), group.columns.tp)
    time = layer_time(kind, group, machine.rates)
    blocks = _between_blocks(group, machine, exchanges=tensor_exchanges(kind))
    forward = {name: seconds * _in_pieces(group, machine) for name, seconds in blocks.items()}
    experts = _expert_exchange(kind, group, machine)
    context_forward, context_backward = _context_exchange(kind, group, machine, time)
    share = recomputed_share(group)
    return LayerCost(
        time=time,
        recomputed=recomputed_s(group, time),
        forward={**forward, **experts, **context_forward},
        backward={
            **_under_weight_gradients(blocks, time, group, machine),
            **experts,
            **context_backward,
        },
        again={name: share * seconds for name, seconds in {**forward, **experts}.items()},
        gather=gather_s(parameters, group, machine),
        reduce=reduce_s(parameters, group, machine),
    )


def _in_pieces(group: LayoutGroup, machine: Machine) -> float:
    """What is left exposed of a tensor-parallel collective that matmuls take piece by piece."""
    is_cut = group.training.runtime.overlap_tensor_parallel
    return 1.0 - machine.tensor_overlap if is_cut else 1.0


def _under_weight_gradients(
    blocks: Terms, time: PartTime, group: LayoutGroup, machine: Machine
) -> Terms:
    """Tensor-parallel collectives of backward as far as they show.

    A column-parallel linear sends the gradient of its input while it computes that of its weight
    (Megatron-LM, ``core/tensor_parallel/layers.py``): an all_reduce, or under sequence parallelism
    a reduce_scatter; the all_gather before it has nothing to hide under. Half of a layer's weights
    are column-parallel.
    """
    left = _in_pieces(group, machine)
    if not group.profile.hides_tensor_parallel_backward:
        return {name: left * seconds for name, seconds in blocks.items()}
    room = machine.overlap * time.weight / 2
    return {
        name: left * seconds if name == "all_gather.tp" else _shown(seconds, room, machine)
        for name, seconds in blocks.items()
    }


def _expert_exchange(kind: LayerSpec, group: LayoutGroup, machine: Machine) -> Terms:
    """Dispatch and combine around the experts of a layer, one way."""
    if machine.axes.ep.is_single or kind.moe is None:
        return {}
    size = dispatched_bytes(kind.moe, group)
    seconds = machine.costs.seconds("all_to_all", size, machine.axes.ep)
    imbalance = group.training.runtime.expert_imbalance
    return {"all_to_all.ep": BLOCKS_AROUND_EXPERTS * imbalance * seconds}


def _rank(
    shape: RankShape, layers: Mapping[LayerSpec, LayerCost], group: LayoutGroup, machine: Machine
) -> _Rank:
    each: Terms = {}
    compute = rank_compute(shape, layers, group, machine)
    each["compute"] = compute.forward + compute.backward
    if group.columns.offloads_activations.any():
        moved = activations_s(shape, group, machine.costs.topology)
        each["other"] = _shown(moved, machine.overlap * each["compute"], machine)
    for kind, count in _layers(shape):
        layer = layers[kind]
        _add(each, {"recompute": layer.recomputed}, count)
        for exposed in (layer.forward, layer.backward, layer.again):
            _add(each, exposed, count)
    if shape.chunks[0].has_embedding:
        _add(each, embedding_exchange(group, machine))
    if shape.chunks[-1].has_head:
        for exposed in head_exchange(group, machine):
            _add(each, exposed)
    _add(each, _pipeline_exchange(shape, group, machine))
    sharding, once = _sharding(shape, layers, compute, each["recompute"], group, machine)
    _add(each, sharding)
    _add(once, after_backward(shape, compute, group, machine))
    return _Rank(per_micro_batch=each, once=once)


def rank_compute(
    shape: RankShape, layers: Mapping[LayerSpec, LayerCost], group: LayoutGroup, machine: Machine
) -> PartTime:
    """Computation of one micro-batch on a rank: its layers and its head."""
    parts = [(layers[kind].time, count) for kind, count in _layers(shape)]
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


def _between_blocks(group: LayoutGroup, machine: Machine, exchanges: int) -> Terms:
    """Tensor parallelism around ``exchanges`` blocks, one way: an all_reduce after each, or with
    sequence parallelism an all_gather before and a reduce_scatter after (2205.05198, section 4.2).
    Exposed in full: what follows needs the result."""
    if machine.axes.tp.is_single:
        return {}
    numerics, costs = group.numerics, machine.costs
    is_sequence = group.columns.sequence_split > 1
    reduced = hidden_bytes(group, numerics.compute_bytes)
    gathered = gathered_hidden_bytes(group)
    all_reduce = exchanges * costs.seconds("all_reduce", reduced, machine.axes.tp)
    all_gather = exchanges * costs.seconds("all_gather", gathered, machine.axes.tp)
    scatter = exchanges * costs.seconds("reduce_scatter", reduced, machine.axes.tp)
    return {
        "all_reduce.tp": np.where(is_sequence, 0.0, all_reduce),
        "all_gather.tp": np.where(is_sequence, all_gather, 0.0),
        "reduce_scatter.tp": np.where(is_sequence, scatter, 0.0),
    }


def embedding_exchange(group: LayoutGroup, machine: Machine) -> Terms:
    """Exposed in the forward of a vocabulary-parallel embedding: half an exchange."""
    half = _between_blocks(group, machine, exchanges=1)
    return {name: seconds for name, seconds in half.items() if name != "all_gather.tp"}


def head_exchange(group: LayoutGroup, machine: Machine) -> tuple[Terms, Terms]:
    """Exposed in the head's forward and in its backward: half an exchange each way, and the gather
    of the logits where the engine does one."""
    half = _between_blocks(group, machine, exchanges=1)
    if not half:
        return {}, {}
    gathered = half.pop("all_gather.tp")
    if group.profile.gathers_logits:
        logits = machine.costs.seconds("all_gather", logits_bytes(group), machine.axes.tp)
        gathered = gathered + logits
    return {"all_gather.tp": gathered}, half


def _context_exchange(
    kind: LayerSpec, group: LayoutGroup, machine: Machine, time: PartTime
) -> tuple[Terms, Terms]:
    """Keys and values (or, for all_to_all, heads) of one layer, forward and backward.

    ring and all_gather move k and v once forward and twice backward (again, and their gradients);
    all_to_all moves q, k, v and the output once each way. A ring sends the next keys while it
    computes on the last ones, all but the first.
    """
    if machine.axes.cp.is_single or kind.find(AttentionSpec) is None:
        return {}, {}
    costs, ranks = machine.costs, machine.axes.cp
    gathered_s = costs.seconds("all_gather", keys_bytes(kind, group), ranks)
    exchange_s = costs.seconds("all_to_all", heads_bytes(kind, group), ranks)
    method = group.candidates.cp_method
    is_exchange = method == CP_METHODS.index("all_to_all")
    is_gather = method == CP_METHODS.index("all_gather")
    ring = np.where(is_exchange | is_gather, 0.0, gathered_s)
    once = {
        "all_to_all.cp": np.where(is_exchange, exchange_s, 0.0),
        "all_gather.cp": np.where(is_gather, gathered_s, 0.0),
    }
    backward = {
        name: (CONTEXT_PASSES[name.removesuffix(".cp")] - 1) * seconds
        for name, seconds in once.items()
    }
    room = machine.overlap * (1 - 1 / group.columns.cp) * time.mixing
    again = CONTEXT_PASSES["send_recv"] - 1
    once["send_recv.cp"] = _shown(ring, room, machine)
    backward["send_recv.cp"] = _shown(again * ring, FLASH_BACKWARD * room, machine)
    return once, backward


def _shown(seconds: FloatArray, room: FloatArray, machine: Machine) -> FloatArray:
    """What communication costs with ``room`` seconds of computation beside it: what sticks out, and
    what that computation loses to it."""
    exposed = np.maximum(0.0, seconds - room)
    return np.asarray(exposed + machine.contention * (seconds - exposed))


def _pipeline_exchange(shape: RankShape, group: LayoutGroup, machine: Machine) -> Terms:
    """What this rank waits for per micro-batch: hidden states forward, their gradients back."""
    if machine.axes.pp.is_single:
        return {}
    received = group.pipeline.receives(shape.rank)
    hidden = group.pipeline.vpp > 1 and group.profile.hides_pipeline_exchange
    left = machine.contention if hidden else 1.0
    return {"send_recv.pp": left * received * boundary_s(group, machine)}


def boundary_s(group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds in which one micro-batch's hidden states pass from one stage to the next."""
    return machine.costs.seconds("send_recv", boundary_bytes(group), machine.axes.pp)


def gather_s(parameters: FloatArray, group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds of gathering so many parameters over the ranks that shard them; 0 where none do."""
    size_bytes = gathered_parameters_bytes(parameters, group)
    seconds = machine.costs.seconds("all_gather", size_bytes, machine.axes.states)
    return np.where(group.columns.shards_parameters, seconds, 0.0)


def reduce_s(parameters: FloatArray, group: LayoutGroup, machine: Machine) -> FloatArray:
    """Seconds of scattering their gradients."""
    size_bytes = gradients_bytes(parameters, group)
    seconds = machine.costs.seconds("reduce_scatter", size_bytes, machine.axes.states)
    return np.where(group.columns.shards_parameters, seconds, 0.0)


def _sharding(  # noqa: PLR0917  (one argument a thing that hides or is hidden)
    shape: RankShape,
    layers: Mapping[LayerSpec, LayerCost],
    compute: PartTime,
    recomputed: FloatArray,
    group: LayoutGroup,
    machine: Machine,
) -> tuple[Terms, Terms]:
    """Exposed gathers and scatters of sharded states, per micro-batch and once a step.

    Each layer's gather hides under the layer before it, each scatter under the one after; the
    first gather, the last scatter and those of the root unit (embedding, head) have nothing to
    hide under. Stage 2 gathers once a micro-batch, stage 3 again in backward; where whole
    gradients are kept, scatters come once, at the end, with nothing beside them.
    """
    if machine.axes.states.is_single:
        return {}, {}
    columns, overlap = group.columns, machine.overlap
    ends = on_rank(ends_parameters(shape, group.model), columns.tp)
    root_gather, root_reduce = gather_s(ends, group, machine), reduce_s(ends, group, machine)
    pairs = [(layers[kind], count) for kind, count in _layers(shape)]
    gathers = sum((count * layer.gather for layer, count in pairs), start=np.zeros(len(columns)))
    reduces = sum((count * layer.reduce for layer, count in pairs), start=np.zeros(len(columns)))
    first_gather = pairs[0][0].gather if pairs else gathers
    last_reduce = pairs[0][0].reduce if pairs else reduces

    room = overlap * compute.forward
    forward = root_gather + np.maximum(first_gather, _shown(gathers, room, machine))
    gathers_again = np.where(columns.frees_after_forward, gathers, 0.0)
    reduces_now = np.where(columns.keeps_gradients, 0.0, reduces)
    root_now = np.where(columns.keeps_gradients, 0.0, root_reduce)
    unhidden = np.where(columns.frees_after_forward, first_gather, 0.0) + np.where(
        columns.keeps_gradients, 0.0, last_reduce
    )
    in_backward = gathers_again + reduces_now
    room = overlap * (compute.backward + recomputed)
    exposed = np.maximum(unhidden, _shown(in_backward, room, machine))
    share = np.divide(exposed, in_backward, out=np.zeros_like(exposed), where=in_backward > 0)

    gathered_once = columns.keeps_gradients & ~columns.frees_after_forward & (columns.pp > 1)
    per_micro_batch = {
        "all_gather.dp_shard": np.where(gathered_once, 0.0, forward) + share * gathers_again,
        "reduce_scatter.dp_shard": share * reduces_now + root_now,
    }
    once = {
        "all_gather.dp_shard": np.where(gathered_once, forward, 0.0),
        "reduce_scatter.dp_shard": np.where(columns.keeps_gradients, reduces + root_reduce, 0.0),
    }
    return per_micro_batch, once


def after_backward(
    shape: RankShape, compute: PartTime, group: LayoutGroup, machine: Machine
) -> Terms:
    """What a rank does once a step after its last backward: sums over replicas as far as they show,
    the optimizer, and sending what it updated."""
    columns = group.columns
    parameters = on_rank(rank_parameters(shape, group.model), columns.tp)
    terms = _replication(shape, compute, group, machine)
    stepped = parameters / np.where(columns.shards_optimizer, columns.state_shard, 1)
    terms["optimizer"] = optimizer_s(
        stepped,
        parameters / np.where(columns.shards_parameters, columns.state_shard, 1),
        group.training,
        machine.rates,
    )
    if columns.offloads_states.any():
        on_host = optimizer_on_host_s(stepped, group, machine.costs.topology)
        terms["optimizer"] = np.where(columns.offloads_states, on_host, terms["optimizer"])
    return terms


def _replication(
    shape: RankShape,
    compute: PartTime,
    group: LayoutGroup,
    machine: Machine,
) -> Terms:
    """Gradients summed over replicas once a step, and what stage 1 sends after its update.

    Sums hide under the last micro-batch's backward, less what the shards' own communication has
    hidden there already, and gathers of what was updated under the first one's forward, where the
    engine does so. Through FSDP2 in a pipeline the sum comes after everything.
    """
    columns, costs, axes = group.columns, machine.costs, machine.axes
    parameters = on_rank(rank_parameters(shape, group.model), columns.tp)
    held = parameters / np.where(columns.shards_parameters, columns.state_shard, 1)
    is_zero1 = columns.shards_optimizer & ~columns.shards_parameters
    layers = max(1, sum(chunk.num_layers for chunk in shape.chunks))
    room = np.where(
        columns.through_fsdp & (columns.pp > 1), 0.0, machine.overlap * compute.backward
    )
    room = np.where(columns.shards_parameters, room / 2, room)
    room = room if _overlaps_gradients(group) else np.zeros(len(group))
    room_of_update = machine.overlap * compute.forward * _overlaps_parameters(group)

    def exposed(seconds: FloatArray, room: FloatArray) -> FloatArray:
        return np.maximum(seconds / layers, _shown(seconds, room, machine))

    gradients = gradients_bytes(held, group)
    update = updated_parameters_bytes(parameters, group)
    over_replicas = costs.seconds("all_reduce", gradients, axes.replicas)
    if not group.profile.scatters_gradients:
        over_all = costs.seconds("all_reduce", gradients, axes.gradients)
        sent = costs.seconds("broadcast", update, axes.states)
        return {
            "all_reduce.dp_replicate": np.where(is_zero1, 0.0, exposed(over_replicas, room)),
            "all_reduce.dp_shard": np.where(is_zero1, exposed(over_all, room), 0.0),
            "broadcast.dp_shard": np.where(is_zero1, sent, 0.0),
        }
    scattered = costs.seconds("reduce_scatter", gradients, axes.states)
    shares = np.where(is_zero1, columns.state_shard, 1)
    over_replicas = costs.seconds("all_reduce", gradients / shares, axes.replicas)
    gathered = costs.seconds(
        "all_gather", gathered_parameters_bytes(parameters, group), axes.states
    )
    if group.profile.broadcasts_updates:
        one_by_one = costs.seconds("broadcast", np.zeros(len(group)), axes.states)
        gathered = gathered + columns.state_shard * one_by_one
    return {
        "all_reduce.dp_replicate": exposed(over_replicas, room),
        "reduce_scatter.dp_shard": np.where(is_zero1, exposed(scattered, room), 0.0),
        "all_gather.dp_shard": np.where(is_zero1, exposed(gathered, room_of_update), 0.0),
    }


def _overlaps_gradients(group: LayoutGroup) -> bool:
    asked = group.training.runtime.overlap_gradients
    return group.profile.overlaps_gradients if asked is None else asked


def _overlaps_parameters(group: LayoutGroup) -> bool:
    asked = group.training.runtime.overlap_parameters
    return group.profile.overlaps_parameters if asked is None else asked
