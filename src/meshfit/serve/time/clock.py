"""The clock of one replica: seconds of a step by its matmuls, attention, collectives and host."""

from collections import defaultdict
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import Topology
from meshfit.predict.costs.collectives import AxisGroup, Collective, CollectiveCosts
from meshfit.predict.costs.constants import TimeConstants
from meshfit.predict.costs.rates import TILE
from meshfit.profile import EngineProfile
from meshfit.serve.memory.shards import StageShards, stages
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.time.attention import Mixer, mixers
from meshfit.serve.time.device import ServingDevice, of_release, serving_constants, serving_device
from meshfit.serve.time.matmuls import (
    ComputeType,
    Matmul,
    Matmuls,
    experts_of,
    head_matmuls,
    layer_matmuls,
)
from meshfit.serve.time.step_time import StepLoad
from meshfit.workload.blocks.feed_forward import MoeSpec
from meshfit.workload.model import ModelSpec

FloatArray = NDArray[np.float64]

ACTIVATION_BYTES = 2
OTHER_KERNELS_PER_LAYER = 6
"""Beside matmuls and attention: two norms with the sum of the residual, rotation and the write to the
cache, activation, quantisation of inputs."""
KERNELS_OF_EXPERTS = 4
"""Choice of experts, sorting of tokens, activation, weighted sum."""
EXPERT_TILE = 16
"""Rows of one expert that are computed whole: the least of the grouped kernels' tiles."""
LAUNCHES_OF_ALL_REDUCE = 3
"""By an engine's own kernel outside a graph: room for the result, a copy into the registered buffer, and
the kernel."""
STREAMED_PER_LAYER = 10
"""Hidden vectors that norms, residuals and rotation of one layer read and write for a token."""


@dataclass(frozen=True, kw_only=True)
class StageTime:
    """Seconds of steps on one pipeline stage, by what they wait for; arrays of one shape.

    A kernel counts where the larger of its two bounds is: arithmetic or memory bandwidth.
    ``launches``: what every kernel takes however little it does.
    """

    compute: FloatArray
    memory: FloatArray
    communication: FloatArray
    launches: FloatArray

    @property
    def total(self) -> FloatArray:
        return np.asarray(sum(getattr(self, f.name) for f in fields(self)))


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """A load as arrays of one shape, seen from one rank."""

    prefill_tokens: FloatArray
    prefill_requests: FloatArray
    prefill_length: FloatArray
    decode_requests: FloatArray
    decode_tokens: FloatArray
    context: FloatArray
    head_tokens: FloatArray

    @property
    def tokens(self) -> FloatArray:
        return self.prefill_tokens + self.decode_tokens


@dataclass(frozen=True, kw_only=True)
class ReplicaClock:
    """A ``StepClock`` of one replica.

    Attributes:
        cache_bytes: of one element of the KV cache.
        release: of the engine, where it is known; else what its releases have in common.
        eager: whether the host launches every kernel, instead of captured graphs.
    """

    model: ModelSpec
    layout: ServingLayout
    profile: EngineProfile
    topology: Topology
    cache_bytes: float = 2.0
    release: str = ""
    eager: bool = False
    constants: TimeConstants | None = None

    def with_constants(self, constants: TimeConstants) -> "ReplicaClock":
        """The same replica under other constants; what its ranks hold is not worked out again."""
        other = replace(self, constants=constants)
        other.__dict__["held"] = self.held
        return other

    @cached_property
    def held(self) -> tuple[StageShards, ...]:
        """What one rank of each stage holds."""
        return stages(self.model, self.layout, self.profile)

    @cached_property
    def device(self) -> ServingDevice:
        return serving_device(
            self.topology.accelerator,
            self.profile.name,
            release=self.release,
            constants=self.constants,
        )

    @property
    def request_s(self) -> float:
        """Seconds that a request spends outside steps before its first token."""
        return self.device.request_s

    @property
    def pace(self) -> float:
        """Time per token of the engine's release over that of its others."""
        return self.of_engine("pace")

    def of_engine(self, kind: str) -> float:
        """A constant of the engine, or of its release where that has one of its own."""
        known = self.constants or serving_constants()
        return of_release(known, kind, self.profile.name, self.release)

    def step_s(self, load: StepLoad) -> FloatArray:
        """Seconds from the start of a step to its tokens, through all pipeline stages."""
        return self._total(load, in_line=True)

    def interval_s(self, load: StepLoad) -> FloatArray:
        """Seconds after which the next step may start: the slowest stage's, and the host's."""
        return self._total(load, in_line=False)

    def stage_times(self, load: StepLoad) -> tuple[StageTime, ...]:
        """Seconds of every stage by term, without the host's."""
        steps = _seen_by_rank(load, self.layout)
        once = {id(stage): stage.time(steps) for stage in self._stages}
        return tuple(once[id(stage)] for stage in self._stages)

    def _total(self, load: StepLoad, *, in_line: bool) -> FloatArray:
        totals = np.stack([time.total for time in self.stage_times(load)])
        working = totals.sum(axis=0) if in_line else totals.max(axis=0)
        return np.asarray(working + self.host_s(load))

    def host_s(self, load: StepLoad) -> FloatArray:
        """Seconds of the host in a step: fixed, and for each request of one attention group."""
        groups = self.layout.attention_dp
        requests = np.asarray(load.decode_requests + np.asarray(load.prefill_requests)) / groups
        return np.asarray(self.device.step_s + self.device.sequence_s * requests)

    @cached_property
    def _stages(self) -> tuple["_Stage", ...]:
        """One object for equal stages, as in ``held``."""
        last = self.held[-1]
        once = {
            id(shards): _Stage(clock=self, shards=shards, is_last=shards is last)
            for shards in self.held
        }
        return tuple(once[id(shards)] for shards in self.held)

    @cached_property
    def costs(self) -> CollectiveCosts:
        return CollectiveCosts(topology=self.topology, is_alone=True)


def _seen_by_rank(load: StepLoad, layout: ServingLayout) -> _Steps:
    """One attention group's share of a load."""
    columns = np.broadcast_arrays(
        *(np.asarray(getattr(load, f.name), dtype=np.float64) for f in fields(load))
    )
    named = dict(zip((f.name for f in fields(load)), columns, strict=True))
    groups = layout.attention_dp
    prefill, requests = named["prefill_tokens"], named["decode_requests"]
    seen = np.divide(
        named["prefill_pairs"], prefill, out=np.zeros(prefill.shape), where=prefill > 0
    )
    context = np.divide(
        named["decode_context_tokens"], requests, out=np.zeros(requests.shape), where=requests > 0
    )
    decode_tokens = requests * named["tokens_per_request"]
    return _Steps(
        prefill_tokens=prefill / groups,
        prefill_requests=np.maximum(named["prefill_requests"] / groups, 1e-9),
        prefill_length=np.maximum(2 * seen - 1, 1.0),
        decode_requests=requests / groups,
        decode_tokens=decode_tokens / groups,
        context=context,
        head_tokens=(decode_tokens + named["completed_prefills"]) / groups,
    )


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """One pipeline stage of a clock."""

    clock: ReplicaClock
    shards: StageShards
    is_last: bool

    def time(self, steps: _Steps) -> StageTime:
        products, weights = self._matmul_s(steps)
        scores, caches = self._decode_attention_s(steps)
        compute, memory = products + scores + self._prefill_s(steps), weights + caches
        communication, launches = self._communication_s(steps), self._launches_s(steps)
        if self.clock.eager:
            busy = compute + memory + communication
            launches = np.maximum(launches, self._host_launches_s(steps) - busy)
        return StageTime(
            compute=compute, memory=memory, communication=communication, launches=launches
        )

    @property
    def device(self) -> ServingDevice:
        return self.clock.device

    @property
    def num_layers(self) -> int:
        return sum(group.count for group in self.shards.layers)

    @cached_property
    def moe(self) -> MoeSpec | None:
        return experts_of(self.shards.layers)

    @cached_property
    def _moe_layers(self) -> int:
        return sum(group.count for group in self.shards.layers if group.layer.moe is not None)

    @cached_property
    def mixers(self) -> tuple[Mixer, ...]:
        return mixers(self.shards.layers, self.clock.layout.tp, self.clock.cache_bytes)

    # Matmuls

    @cached_property
    def _layer_matmuls(self) -> dict[ComputeType, Matmuls]:
        peaks = self.clock.topology.accelerator.peak_flops_per_s
        return _by_type(layer_matmuls(self.shards.layers, peaks))

    @cached_property
    def _head(self) -> dict[ComputeType, Matmuls]:
        return _by_type(head_matmuls(self.shards.head))

    def _matmul_s(self, steps: _Steps) -> tuple[FloatArray, FloatArray]:
        """Seconds of matmuls bound by arithmetic; and by memory, with elementwise kernels."""
        compute, memory = np.zeros(steps.tokens.shape), np.zeros(steps.tokens.shape)
        for of_type, tokens in (
            (self._layer_matmuls, steps.tokens),
            (self._head, steps.head_tokens),
        ):
            for kind, columns in of_type.items():
                products, moves = self._of_columns(kind, columns, tokens)
                compute, memory = compute + products, memory + moves
        streamed = STREAMED_PER_LAYER * self.num_layers * self.clock.model.hidden_size
        moved = steps.tokens * streamed * ACTIVATION_BYTES
        return compute, memory + moved / self.device.memory_bytes_per_s

    def _of_columns(
        self, kind: ComputeType, columns: Matmuls, tokens: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds of those matmuls that arithmetic bounds, and of those that memory does.

        Experts are one grouped kernel: it fills the device as one matmul of the tiles of all of them
        does (each that got any row has tiles of its own), and computes whole small tiles of each.
        """
        flat = tokens.reshape(1, -1)
        is_expert = columns.experts > 0
        rows, active = self._expert_rows(columns, flat)
        rows = np.where(is_expert, rows, flat)
        times = np.where(is_expert, active, 1.0) * columns.count
        n, k = columns.outputs, columns.inputs
        together = np.where(is_expert, np.ceil(rows / TILE) * TILE * active, rows)
        rate = self.device.matmul[kind].rate(np.maximum(together, TILE), n, k)
        rate = rate * np.where(is_expert, self.device.experts, 1.0)
        computed = np.where(is_expert, np.ceil(rows / EXPERT_TILE) * EXPERT_TILE, rows)
        compute = 2.0 * computed * n * k / rate
        moved = columns.weight_bytes + rows * (n + k) * ACTIVATION_BYTES
        moving = moved / self.device.memory_bytes_per_s
        is_bound = compute > moving
        bound = np.where(is_bound, compute, 0.0) * times
        other = np.where(is_bound, 0.0, moving) * times
        return bound.sum(axis=0).reshape(tokens.shape), other.sum(axis=0).reshape(tokens.shape)

    def _expert_rows(self, columns: Matmuls, tokens: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows of each expert that gets any, and how many experts of the rank do: of ``E`` experts
        with ``k`` chosen, ``E (1 - (1 - k / E)^tokens)``, choices taken to be even."""
        if self.moe is None:
            return tokens, np.ones_like(tokens)
        layout, moe = self.clock.layout, self.moe
        everyones = tokens * layout.attention_dp
        chosen = moe.experts_per_token / moe.num_experts
        active = np.maximum(columns.experts * -np.expm1(everyones * np.log1p(-chosen)), 1e-9)
        pairs = everyones * chosen * columns.experts
        return pairs / active, active

    # Attention

    def _prefill_s(self, steps: _Steps) -> FloatArray:
        total = np.zeros(steps.tokens.shape)
        for mixer in self.mixers:
            flops = mixer.prefill_flops(steps.prefill_tokens, steps.prefill_length)
            if mixer.is_recurrent:
                rate = np.asarray(self.device.scan_flops_per_s)
            else:
                rate = self.device.attention_share * self.device.attention.attention_rate(
                    mixer.num_heads * np.maximum(steps.prefill_requests, 1.0),
                    steps.prefill_length,
                    mixer.head_dim,
                    "auto",
                )
            total = total + mixer.count * flops / rate
        return total

    def _decode_attention_s(self, steps: _Steps) -> tuple[FloatArray, FloatArray]:
        """Seconds of attention of decoding requests, by arithmetic and by reading the past."""
        compute, memory = np.zeros(steps.tokens.shape), np.zeros(steps.tokens.shape)
        for mixer in self.mixers:
            moved = mixer.read_bytes(steps.decode_requests, steps.context)
            reading = mixer.count * moved / self.device.cache_bytes_per_s
            flops = mixer.decode_flops(steps.decode_tokens, steps.context)
            scoring = mixer.count * flops / self.device.latent_flops_per_s
            compute = compute + np.where(scoring > reading, scoring, 0.0)
            memory = memory + np.where(scoring > reading, 0.0, reading)
        return compute, memory

    # Communication

    def _communication_s(self, steps: _Steps) -> FloatArray:
        layout, hidden = self.clock.layout, self.clock.model.hidden_size
        moved = steps.tokens * hidden * ACTIVATION_BYTES
        total = np.zeros(steps.tokens.shape)
        mixed_behind = self.num_layers
        fed_behind = self.num_layers
        if layout.attention_dp > 1:
            fed_behind -= self._moe_layers
            ranks = layout.ranks_per_stage
            everyones = moved * layout.attention_dp
            exchange = self._collective_s("all_gather", everyones, ranks)
            exchange = exchange + self._collective_s("reduce_scatter", everyones, ranks)
            total = total + self._moe_layers * exchange
        if layout.tp > 1:
            total = total + (mixed_behind + fed_behind) * self._all_reduce_s(moved, layout.tp)
            if self.is_last:
                logits = steps.head_tokens * self.clock.model.vocab_size * ACTIVATION_BYTES
                total = total + self._collective_s("all_gather", logits, layout.tp)
        if not self.is_last:
            total = total + self._send_s(moved)
        return total

    def _all_reduce_s(self, size: FloatArray, ranks: int) -> FloatArray:
        """The faster of NCCL and of the engine's own kernel, in which every rank reads what all
        others have (vLLM's and SGLang's ``custom_all_reduce``, one shot), inside one domain; over PCIe
        it is for two ranks (``custom_all_reduce.py``: no more than two PCIe-only GPUs)."""
        by_nccl = self._collective_s("all_reduce", size, ranks)
        level = self.clock.topology.levels[0]
        if ranks > level.size or (level.kind == "bus" and ranks > 2):
            return by_nccl
        own = self.device.custom_s + size * (ranks - 1) / level.bandwidth_bytes_per_s
        return np.minimum(by_nccl, own)

    def _collective_s(self, kind: Collective, size: FloatArray, ranks: int) -> FloatArray:
        flat = np.ravel(size)
        group = self._group(len(flat), ranks, 1)
        return self.clock.costs.seconds(kind, flat, group).reshape(np.shape(size))

    def _send_s(self, size: FloatArray) -> FloatArray:
        flat = np.ravel(size)
        group = self._group(len(flat), 2, self.clock.layout.ranks_per_stage)
        return self.clock.costs.seconds("send_recv", flat, group).reshape(np.shape(size))

    def _group(self, count: int, ranks: int, stride: int) -> AxisGroup:
        return self.clock.costs.place(
            np.full(count, ranks, dtype=np.int64), np.full(count, stride, dtype=np.int64)
        )

    # Launches

    def _kernels(self, steps: _Steps) -> FloatArray:
        kernels = sum(float(columns.count.sum()) for columns in self._layer_matmuls.values())
        kernels += self.num_layers * OTHER_KERNELS_PER_LAYER
        kernels += self._moe_layers * KERNELS_OF_EXPERTS
        both = (steps.prefill_tokens > 0).astype(float) + (steps.decode_requests > 0)
        return np.asarray(kernels + both * sum(mixer.count for mixer in self.mixers))

    def _launches_s(self, steps: _Steps) -> FloatArray:
        """Every kernel starts and ends, however little it does."""
        return np.asarray(self._kernels(steps) * self.device.kernel_s)

    def _host_launches_s(self, steps: _Steps) -> FloatArray:
        """What the host takes to launch them one by one; it runs ahead where they take longer."""
        reductions = 2 * self.num_layers if self.clock.layout.tp > 1 else 0
        launches = self._kernels(steps) + reductions * LAUNCHES_OF_ALL_REDUCE
        return np.asarray(launches * self.device.launch_s)


def _by_type(matmuls: tuple[Matmul, ...]) -> dict[ComputeType, Matmuls]:
    together: dict[ComputeType, list[Matmul]] = defaultdict(list)
    for one in matmuls:
        together[one.computed_in].append(one)
    return {kind: Matmuls(matmuls=tuple(ones)) for kind, ones in together.items()}
