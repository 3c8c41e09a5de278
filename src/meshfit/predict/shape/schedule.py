"""Pipelines as tier 1 sees them: who holds what, how much is in flight, how long is the bubble.

Common schedules in closed form, the others read off their programs (``predict.shape.schedules``).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import SCHEDULES
from meshfit.mesh.stage_placement import SPLIT_SCHEDULES, V_SCHEDULES, rank_of_stage, stages_of_rank
from meshfit.predict.shape.schedules.flight import Flight, peak_flight
from meshfit.predict.shape.schedules.play import play
from meshfit.predict.shape.schedules.rounds import torch_round
from meshfit.predict.shape.schedules.waves import waves_of
from meshfit.workload.model import LayerSpec, ModelSpec

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """One virtual stage: how many layers of each kind it has, and what else lies on it."""

    layers: tuple[tuple[LayerSpec, int], ...]
    has_embedding: bool
    has_head: bool

    @property
    def num_layers(self) -> int:
        return sum(count for _, count in self.layers)


@dataclass(frozen=True, kw_only=True)
class RankShape:
    """What one pipeline rank holds: one chunk per virtual stage, in model order."""

    rank: int
    chunks: tuple[Chunk, ...]

    @property
    def layers(self) -> tuple[tuple[LayerSpec, int], ...]:
        """Each kind of layer on it and how many, chunk by chunk."""
        return tuple(pair for chunk in self.chunks for pair in chunk.layers)

    @property
    def num_layers(self) -> int:
        return sum(chunk.num_layers for chunk in self.chunks)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One way to cut a model into stages: ``pp`` ranks with ``vpp`` virtual stages each, in a loop
    or a V as the schedule has it (``mesh.stage_placement``)."""

    pp: int
    vpp: int
    schedule: str
    stage_layers: tuple[int, ...]
    model: ModelSpec

    @cached_property
    def ranks(self) -> tuple[RankShape, ...]:
        """What every pipeline rank holds."""
        return tuple(
            RankShape(rank=rank, chunks=tuple(self.chunks[stage] for stage in self.stages_of(rank)))
            for rank in range(self.pp)
        )

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """Stages that lie on a rank, in model order."""
        return stages_of_rank(self.schedule, rank, self.pp, self.vpp)

    def receives(self, rank: int) -> int:
        """What a rank receives from others for one micro-batch, forward and backward: a message at
        each end of a stage whose neighbour lies on another rank."""
        ends = ((stage, stage + step) for stage in self.stages_of(rank) for step in (-1, 1))
        return sum(
            0 <= other < len(self.stage_layers)
            and rank_of_stage(self.schedule, other, self.pp) != rank
            for _, other in ends
        )

    @cached_property
    def distinct_ranks(self) -> tuple[tuple[RankShape, int], ...]:
        """Ranks that hold the same, as (one of them, how many they are).

        That one also stands for the memory of the others. In a loop it is the earliest, which has
        no fewer micro-batches in flight on any of its stages. In a V ranks trade micro-batches of
        one stage for those of the other; where both stages are alike the most are on the earliest
        or, of ZB-V with few micro-batches, on the latest, and where not every rank stands for
        itself.
        """
        alike: dict[tuple[Chunk, ...], list[RankShape]] = {}
        for shape in self.ranks:
            alike.setdefault(shape.chunks, []).append(shape)
        found: list[tuple[RankShape, int]] = []
        for chunks, shapes in alike.items():
            if self.schedule not in V_SCHEDULES or len(shapes) == 1:
                found.append((shapes[0], len(shapes)))
            elif len(set(chunks)) == 1:
                found += [(shapes[0], len(shapes) - 1), (shapes[-1], 1)]
            else:
                found += [(shape, 1) for shape in shapes]
        return tuple(found)

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """Every stage in model order."""
        num_stages = self.pp * self.vpp
        chunks, start = [], 0
        for stage, count in enumerate(self.stage_layers):
            layers = Counter(self.model.layers[start : start + count])
            chunks.append(
                Chunk(
                    layers=tuple(layers.items()),
                    has_embedding=stage == 0,
                    has_head=stage == num_stages - 1,
                )
            )
            start += count
        return tuple(chunks)


@dataclass(frozen=True, kw_only=True)
class InFlight:
    """Micro-batches whose activations one rank holds at its forward peak.

    Attributes:
        per_chunk: one array a virtual stage.
        put_off: one array a virtual stage: micro-batches beside these whose gradients of weights
            are still to come, for which inputs of matmuls and gradients of their outputs are held.
        accumulating: whether gradients of an earlier micro-batch are there at that moment.
    """

    per_chunk: tuple[IntArray, ...]
    put_off: tuple[IntArray, ...]
    accumulating: NDArray[np.bool_]

    @property
    def kept(self) -> tuple[IntArray, ...]:
        """Micro-batches by what they keep: one put off counts as one in flight, since inputs of
        matmuls and gradients of their outputs are about what a forward keeps."""
        return tuple(
            flying + waiting for flying, waiting in zip(self.per_chunk, self.put_off, strict=True)
        )


def by_schedule(
    pipeline: Pipeline, schedules: IntArray | None, count: int
) -> Iterator[tuple[Pipeline, IntArray]]:
    """The pipeline under each schedule of ``count`` layouts that share its stages and where they lie,
    with the layouts; all of them under its own where no ``schedules`` are given."""
    if schedules is None:
        yield pipeline, np.arange(count)
        return
    for code in np.unique(schedules):
        yield replace(pipeline, schedule=SCHEDULES[code]), np.flatnonzero(schedules == code)


def in_flight(
    pipeline: Pipeline,
    rank: int,
    micro_batches: IntArray,
    schedules: IntArray | None = None,
    round_sizes: IntArray | None = None,
) -> InFlight:
    """Micro-batches in flight on ``rank``, for every number of micro-batches.

    Args:
        schedules: of every layout, an index into ``SCHEDULES``; None: the pipeline's.
        round_sizes: micro-batches of a round of interleaved 1F1B; None: torch's (``rounds.Rounds``).

    GPipe and looped BFS: all of them. 1F1B: ``min(m, pp - rank)`` (2104.04473, section 2.2).
    Interleaved: the warm-up of torch.distributed.pipelining (``schedules.py::_get_warmup_ops``) and
    of Megatron-Core (``pipeline_parallel/schedules.py::get_pp_rank_microbatches``), which runs
    ``(vpp - 1) * round + 2 * (pp - 1 - rank)`` forwards of chunks before its first backward, and one
    more before that backward frees any; they go round the chunks, ``round`` micro-batches each. The
    others: as their programs have it.
    """
    if round_sizes is None:
        round_sizes = torch_round(pipeline.pp, micro_batches)
    if schedules is None or np.ptp(schedules) == 0:
        ((one, _),) = by_schedule(pipeline, schedules, len(micro_batches))
        return _in_flight(one, rank, micro_batches, round_sizes)
    flying, put_off = (np.zeros((pipeline.vpp, len(micro_batches)), dtype=np.int64) for _ in "fp")
    accumulating = np.zeros(len(micro_batches), dtype=np.bool_)
    for one, rows in by_schedule(pipeline, schedules, len(micro_batches)):
        held = _in_flight(one, rank, micro_batches[rows], round_sizes[rows])
        flying[:, rows], put_off[:, rows] = held.per_chunk, held.put_off
        accumulating[rows] = held.accumulating
    return InFlight(per_chunk=tuple(flying), put_off=tuple(put_off), accumulating=accumulating)


def _in_flight(
    pipeline: Pipeline, rank: int, micro_batches: IntArray, round_sizes: IntArray
) -> InFlight:
    if pipeline.schedule in SPLIT_SCHEDULES:
        return _of_program(pipeline, rank, micro_batches)
    per_chunk, accumulating = _in_closed_form(pipeline, rank, micro_batches, round_sizes)
    nothing = np.zeros_like(micro_batches)
    return InFlight(
        per_chunk=per_chunk, put_off=(nothing,) * pipeline.vpp, accumulating=accumulating
    )


def _in_closed_form(
    pipeline: Pipeline, rank: int, micro_batches: IntArray, round_sizes: IntArray
) -> tuple[tuple[IntArray, ...], NDArray[np.bool_]]:
    if pipeline.schedule in ("gpipe", "looped_bfs"):
        return (micro_batches,) * pipeline.vpp, np.zeros(micro_batches.shape, dtype=np.bool_)
    if pipeline.vpp == 1:
        held = np.minimum(micro_batches, pipeline.pp - rank)
        return (held,), micro_batches > held
    warm_up = (pipeline.vpp - 1) * round_sizes + 2 * (pipeline.pp - 1 - rank)
    forwards = np.minimum(warm_up + 1, micro_batches * pipeline.vpp)
    full_rounds, rest = np.divmod(forwards, round_sizes * pipeline.vpp)
    per_chunk = tuple(
        full_rounds * round_sizes + np.clip(rest - chunk * round_sizes, 0, round_sizes)
        for chunk in range(pipeline.vpp)
    )
    return per_chunk, micro_batches * pipeline.vpp > forwards


def _of_program(pipeline: Pipeline, rank: int, micro_batches: IntArray) -> InFlight:
    counts, of_count = np.unique(micro_batches, return_inverse=True)
    peaks = [
        peak_flight(pipeline.schedule, rank, pipeline.pp, pipeline.vpp, int(count))
        for count in counts
    ]

    def columns(values: Callable[[Flight], tuple[int, ...]]) -> tuple[IntArray, ...]:
        table = np.array([values(peak) for peak in peaks], dtype=np.int64)
        return tuple(table[of_count].T)

    (accumulating,) = columns(lambda peak: (peak.accumulating,))
    return InFlight(
        per_chunk=columns(lambda peak: peak.per_stage),
        put_off=columns(lambda peak: peak.put_off),
        accumulating=accumulating.astype(np.bool_),
    )


def bubble_s(
    pipeline: Pipeline,
    slowest_s: FloatArray,
    all_ranks_s: FloatArray,
    micro_batches: IntArray,
    schedules: IntArray | None = None,
) -> FloatArray:
    """Idle seconds of the slowest rank in one step.

    The slowest rank works without a gap once the pipeline is full; what it waits for is one
    micro-batch's work of every other rank, filling before and draining after:
    ``(sum of ranks - slowest) / vpp``. With equal ranks this is ``(pp - 1) * t / vpp``, that is a
    bubble of ``(pp - 1) / (vpp * m + pp - 1)`` of the step (2104.04473, equation 2). Schedules that
    put off gradients of weights leave the share of it that their program leaves with forward and
    both halves of backward equally long (2401.10241, table 1).

    Ignores the extra gap of interleaving when micro-batches do not divide by ``pp``, that of
    looped BFS with fewer micro-batches than ranks, and how uneven ranks fill each other's gaps;
    tier 2 (``predict.simulate``) has them.

    Args:
        slowest_s: forward and backward of one micro-batch on the slowest rank.
        all_ranks_s: their sum over all ranks.
        micro_batches: of one step; ``schedules``: as of ``in_flight``.
    """
    unfilled = (all_ranks_s - slowest_s) / pipeline.vpp
    if pipeline.pp == 1:
        return unfilled
    for one, rows in by_schedule(pipeline, schedules, len(unfilled)):
        if one.schedule in SPLIT_SCHEDULES:
            unfilled[rows] *= _unfilled_shares(one, micro_batches[rows])
    return unfilled


def _unfilled_shares(pipeline: Pipeline, micro_batches: IntArray) -> FloatArray:
    counts, of_count = np.unique(micro_batches, return_inverse=True)
    shares = [
        _unfilled_share(pipeline.schedule, pipeline.pp, pipeline.vpp, int(count))
        for count in counts
    ]
    return np.array(shares)[of_count]


SAME_BUBBLE_MICRO_BATCHES = 2
"""So many micro-batches a rank fill a pipeline; more of them leave the same bubble."""


@lru_cache(maxsize=4096)
def _unfilled_share(schedule: str, pp: int, vpp: int, micro_batches: int) -> float:
    """The bubble of a balanced pipeline, over that of interleaved 1F1B with as many stages."""
    rounds = min(micro_batches // pp, SAME_BUBBLE_MICRO_BATCHES)
    played_micro_batches = pp * rounds + micro_batches % pp if rounds else micro_batches
    waves = waves_of(schedule, pp, vpp, played_micro_batches)
    seconds = np.array([1.0, 2.0, 1.0, 1.0])[waves.kind, None]
    step = play(waves, seconds, np.zeros(1)).finish.max()
    return float((step - 3.0 * vpp * played_micro_batches) / (3.0 * (pp - 1)))
