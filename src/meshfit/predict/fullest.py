"""Memory of the pipeline rank that holds most."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.predict.basis import Basis
from meshfit.predict.memory.deepspeed import rank_memory as deepspeed_rank_memory
from meshfit.predict.memory.megatron.memory import rank_memory as megatron_rank_memory
from meshfit.predict.memory.pytorch import RankMemory
from meshfit.predict.memory.pytorch import rank_memory as pytorch_rank_memory
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.pick import largest, picked
from meshfit.predict.shape.schedule import RankShape

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def rank_memory(shape: RankShape, group: LayoutGroup) -> RankMemory:
    """By the memory model that the engine's profile names."""
    if group.profile.memory_model == "megatron":
        return megatron_rank_memory(shape, group)
    if group.profile.memory_model == "deepspeed":
        return deepspeed_rank_memory(shape, group)
    return pytorch_rank_memory(shape, group)


@dataclass(frozen=True, kw_only=True)
class FullestRank:
    """Memory of the rank that holds most, for every layout: [n, categories], and [n] each."""

    categories: FloatArray
    reserved: FloatArray
    context: FloatArray
    host: FloatArray
    rank: IntArray


def fullest_rank(group: LayoutGroup, basis: Basis) -> FullestRank:
    """Of every layout, over its pipeline ranks."""
    shapes = [shape for shape, _ in group.pipeline.distinct_ranks]
    ranks = [rank_memory(shape, group) for shape in shapes]
    held = [on_device(rank, basis) for rank in ranks]
    worst = largest([reserved + context for reserved, context in held])
    categories = [
        picked(worst, [rank.categories[name] for rank in ranks]) for name in MEMORY_CATEGORIES
    ]
    return FullestRank(
        categories=np.stack(categories, axis=1),
        reserved=picked(worst, [reserved for reserved, _ in held]),
        context=picked(worst, [context for _, context in held]),
        host=picked(worst, [rank.host for rank in ranks]),
        rank=np.array([shape.rank for shape in shapes])[worst],
    )


def on_device(rank: RankMemory, basis: Basis) -> tuple[FloatArray, FloatArray]:
    """Bytes that the allocator holds, and those outside it; on CPU there is no caching allocator and
    no context."""
    if basis.is_cuda:
        return rank.reserved, rank.context
    return rank.allocated, np.zeros(len(rank.allocated))
