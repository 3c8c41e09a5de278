"""Workspaces, buffers and gradients of weights that are not yet where they will stay."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.megatron.kernels import workspace_bytes
from meshfit.predict.memory.megatron.parameters import layer_parameters, on_rank
from meshfit.predict.memory.megatron.rank import MegatronRank
from meshfit.predict.memory.megatron.states import gradient_bytes
from meshfit.predict.memory.megatron.tensors import Saved, total

FloatArray = NDArray[np.float64]

INTERLEAVED_EXCHANGES = 4
"""Hidden states that an interleaved schedule holds beside what layers keep: received ahead and
being sent, forward and backward."""

LIVE_UNITS = 2
"""Layers that Megatron-FSDP holds gathered: the one in use and the next."""


def standing(rank: MegatronRank) -> FloatArray:
    """Workspaces, and the buffers that Megatron-Core keeps for good (``GlobalMemoryBuffer``):
    gathered inputs of its own linears under sequence parallelism, its attention's scores."""
    group, options = rank.group, rank.group.profile.megatron
    buffer = rank.nothing
    if options.global_buffers:
        gathers = rank.has_head or not options.transformer_engine
        is_split = gathers & (group.columns.sequence_split > 1)
        gathered = group.columns.tokens * rank.hidden_size * rank.settings.element_bytes
        buffer = np.maximum(np.where(is_split, gathered, 0.0), _scores(rank))
    has_experts = any(layer.moe is not None for layer in rank.kinds)
    return np.asarray(workspace_bytes(group, has_experts=has_experts) + buffer)


def exchanged(rank: MegatronRank) -> FloatArray:
    """Hidden states that pipeline ranks have received for later or not yet let go: under 1F1B the
    gradient that was sent last."""
    pipeline = rank.group.pipeline
    if pipeline.pp == 1:
        return rank.nothing
    overlaps = pipeline.vpp > 1 and rank.group.profile.megatron.overlap_pipeline_exchange
    return rank.boundary * (INTERLEAVED_EXCHANGES if overlaps else 1)


def gathered(rank: MegatronRank) -> FloatArray:
    """Parameters that Megatron-FSDP (stage 3) holds whole: embedding and head, and the layers in
    use."""
    layers = [layer_parameters(layer, rank.group.model) for layer in rank.kinds]
    units = [on_rank(each, rank.group).total for each in layers]
    largest = np.maximum.reduce([rank.nothing, *units])
    ends = rank.vocabulary * rank.group.model.embedding_width * _vocabulary_matrices(rank)
    live = (ends + LIVE_UNITS * largest) * rank.settings.element_bytes
    return np.where(rank.group.candidates.zero_stage >= 3, live, 0.0)


def reducing(rank: MegatronRank) -> FloatArray:
    """Whole gradients of the layers in use where stages 2 and 3 share gradients out."""
    units = [
        on_rank(layer_parameters(each, rank.group.model), rank.group).total for each in rank.kinds
    ]
    largest = np.maximum.reduce([rank.nothing, *units])
    live = LIVE_UNITS * largest * gradient_bytes(rank.group)
    return np.where(rank.group.candidates.zero_stage >= 2, live, 0.0)


def attention_mask(rank: MegatronRank) -> FloatArray:
    """One byte for every pair of tokens, while a micro-batch's forward has it."""
    if not rank.group.profile.megatron.attention_mask:
        return rank.nothing
    return rank.group.columns.tokens * float(rank.group.training.sequence_length)


def vocabulary_gradient(rank: MegatronRank) -> FloatArray:
    """Of the embedding or the head, before it is added to the buffer."""
    if rank.group.training.adapter is not None:
        return rank.nothing
    width = rank.group.model.embedding_width * rank.settings.element_bytes
    return rank.vocabulary * width


def weight_gradient(rank: MegatronRank) -> FloatArray:
    """The largest of a layer's, unless the matmul adds it to the buffer itself."""
    if rank.fuses_accumulation:
        return rank.nothing
    largest = max((kind.largest_weight for kind in rank.kinds.values()), default=0.0)
    return np.asarray(largest / rank.group.columns.tp * rank.settings.element_bytes)


def _scores(rank: MegatronRank) -> FloatArray:
    """Of one layer of Megatron-Core's own attention, before the softmax."""
    if rank.group.profile.megatron.transformer_engine or rank.settings.kernel != "unfused":
        return rank.nothing
    heads = max((kind.heads for kind in rank.kinds.values()), default=0)
    width = rank.settings.element_bytes * heads
    return total([Saved(name="scores", bytes_per_token=width, split="scores")]).on_rank(rank.tokens)


def _vocabulary_matrices(rank: MegatronRank) -> int:
    if rank.group.model.tie_word_embeddings and rank.has_embedding and rank.has_head:
        return 1
    return int(rank.has_embedding) + int(rank.has_head)
