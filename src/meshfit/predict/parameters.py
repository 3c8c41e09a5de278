"""Parameters that a pipeline rank holds, from those of the parts of a model."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.schedule import Chunk, RankShape
from meshfit.workload import counts
from meshfit.workload.counts import ParameterSplit
from meshfit.workload.model import LayerSpec, ModelSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def on_rank(split: ParameterSplit, tp: IntArray) -> FloatArray:
    """Parameters of one of ``tp`` ranks, for many degrees."""
    return np.asarray(split.sharded / tp + split.replicated)


def layer_parameters(layer: LayerSpec, model: ModelSpec) -> ParameterSplit:
    """One layer: attention, MLP and norms."""
    parts = counts.layer_parameters(model, layer)
    return _sum((parts.attention, parts.mlp, parts.norm))


def blocks_parameters(shape: RankShape, model: ModelSpec) -> ParameterSplit:
    """All layers of one pipeline rank."""
    return _sum(
        _times(layer_parameters(layer, model), count)
        for chunk in shape.chunks
        for layer, count in chunk.layers
    )


def ends_parameters(shape: RankShape, model: ModelSpec) -> ParameterSplit:
    """What lies on a pipeline rank beside layers: embeddings; final norm and head."""
    return _sum(_chunk_ends(chunk, model) for chunk in shape.chunks)


def rank_parameters(shape: RankShape, model: ModelSpec) -> ParameterSplit:
    """All virtual stages of one pipeline rank."""
    return _sum((blocks_parameters(shape, model), ends_parameters(shape, model)))


def head_matrix(shape: RankShape, model: ModelSpec) -> ParameterSplit:
    """The matrix that makes the logits, tied or not, where it lies on this rank."""
    has_head = shape.chunks[-1].has_head
    return ParameterSplit(sharded=counts.embedding_parameters(model) if has_head else 0)


def _chunk_ends(chunk: Chunk, model: ModelSpec) -> ParameterSplit:
    """A tied head is the embedding where both are on one stage; else each end holds a copy."""
    sharded = replicated = 0
    if chunk.has_embedding:
        sharded += counts.embedding_parameters(model)
        replicated += counts.position_parameters(model)
    if chunk.has_head:
        replicated += counts.norm_parameters(model)
        if not (model.tie_word_embeddings and chunk.has_embedding):
            sharded += counts.embedding_parameters(model)
    return ParameterSplit(sharded=sharded, replicated=replicated)


def _sum(splits: Iterable[ParameterSplit]) -> ParameterSplit:
    sharded = replicated = 0
    for split in splits:
        sharded += split.sharded
        replicated += split.replicated
    return ParameterSplit(sharded=sharded, replicated=replicated)


def _times(split: ParameterSplit, count: int) -> ParameterSplit:
    return ParameterSplit(sharded=split.sharded * count, replicated=split.replicated * count)
