"""Pipeline schedules in closed form: who holds what, how much is in flight, how long is the bubble."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One way to cut a model into stages: ``pp`` ranks with ``vpp`` virtual stages each.

    Virtual stage v of rank r is stage ``r + pp * v`` (loop placement: Megatron-Core, and
    torch.distributed.pipelining's interleaved schedules).
    """

    pp: int
    vpp: int
    schedule: str
    stage_layers: tuple[int, ...]
    model: ModelSpec

    @cached_property
    def ranks(self) -> tuple[RankShape, ...]:
        """What every pipeline rank holds."""
        chunks = self._chunks()
        return tuple(
            RankShape(rank=rank, chunks=tuple(chunks[rank :: self.pp])) for rank in range(self.pp)
        )

    @cached_property
    def distinct_ranks(self) -> tuple[tuple[RankShape, int], ...]:
        """Ranks that hold the same, as (the earliest of them, how many they are).

        No schedule here keeps more micro-batches in flight on a later rank than on an earlier one,
        so the earliest also stands for the memory of the others.
        """
        earliest: dict[tuple[Chunk, ...], RankShape] = {}
        for shape in self.ranks:
            earliest.setdefault(shape.chunks, shape)
        counts = Counter(shape.chunks for shape in self.ranks)
        return tuple((shape, counts[chunks]) for chunks, shape in earliest.items())

    def _chunks(self) -> list[Chunk]:
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
        return chunks


@dataclass(frozen=True, kw_only=True)
class InFlight:
    """Micro-batches whose activations one rank holds at its forward peak.

    Attributes:
        per_chunk: one array a virtual stage.
        accumulating: whether gradients of an earlier micro-batch are there at that moment.
    """

    per_chunk: tuple[IntArray, ...]
    accumulating: NDArray[np.bool_]


def in_flight(pipeline: Pipeline, rank: int, micro_batches: IntArray) -> InFlight:
    """Micro-batches in flight on ``rank``, for every number of micro-batches.

    GPipe: all of them. 1F1B: ``min(m, pp - rank)`` (2104.04473, section 2.2). Interleaved: the
    warm-up of torch.distributed.pipelining (``schedules.py::_get_warmup_ops``), which runs
    ``(vpp - 1) * round + 2 * (pp - 1 - rank)`` forwards of chunks before its first backward, and
    one more before that backward frees any; they go round the chunks, ``round`` micro-batches each.
    """
    if pipeline.schedule == "gpipe":
        return InFlight(
            per_chunk=(micro_batches,) * pipeline.vpp,
            accumulating=np.zeros(micro_batches.shape, dtype=np.bool_),
        )
    if pipeline.vpp == 1:
        held = np.minimum(micro_batches, pipeline.pp - rank)
        return InFlight(per_chunk=(held,), accumulating=micro_batches > held)
    per_round = micro_batches // np.maximum(1, micro_batches // pipeline.pp)
    warm_up = (pipeline.vpp - 1) * per_round + 2 * (pipeline.pp - 1 - rank)
    forwards = np.minimum(warm_up + 1, micro_batches * pipeline.vpp)
    full_rounds, rest = np.divmod(forwards, per_round * pipeline.vpp)
    return InFlight(
        per_chunk=tuple(
            full_rounds * per_round + np.clip(rest - chunk * per_round, 0, per_round)
            for chunk in range(pipeline.vpp)
        ),
        accumulating=micro_batches * pipeline.vpp > forwards,
    )


def bubble_s(pipeline: Pipeline, slowest_s: FloatArray, all_ranks_s: FloatArray) -> FloatArray:
    """Idle seconds of the slowest rank in one step.

    The slowest rank works without a gap once the pipeline is full; what it waits for is one
    micro-batch's work of every other rank, filling before and draining after:
    ``(sum of ranks - slowest) / vpp``. With equal ranks this is ``(pp - 1) * t / vpp``, that is a
    bubble of ``(pp - 1) / (vpp * m + pp - 1)`` of the step (2104.04473, equation 2).

    Ignores the extra gap of interleaving when micro-batches do not divide by ``pp``.

    Args:
        slowest_s: forward and backward of one micro-batch on the slowest rank.
        all_ranks_s: their sum over all ranks.
    """
    return (all_ranks_s - slowest_s) / pipeline.vpp
