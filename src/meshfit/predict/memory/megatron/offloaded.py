"""Activations that wait on the host between forward and backward: Megatron-Core's
``--fine-grained-activation-offloading`` (``fine_grained_activation_offload.py`` of 0.19.2)."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.megatron.activations import OPERATIONS, SELECTIVE, recomputed_layers
from meshfit.predict.memory.megatron.layer import moved_tensors
from meshfit.predict.memory.megatron.rank import MegatronRank
from meshfit.predict.memory.megatron.tensors import total
from meshfit.predict.shape.schedule import Chunk
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]

SMALLEST_ELEMENTS = 1024 * 1024
"""Smaller tensors stay (``min_offloaded_tensor_size``)."""
LAYERS_ON_DEVICE = 2
"""Layers of which nothing is away: the one whose backward comes next, which is never moved (the
margin of ``post_warmup_callback``), and the one that is being copied."""


def moved(rank: MegatronRank) -> FloatArray:
    """Bytes on the host at most, of all micro-batches in flight."""
    if not rank.group.columns.offloads_activations.any():
        return rank.nothing
    flying = zip(rank.micro_batches, rank.shape.chunks, strict=True)
    away = sum((n * moved_of_chunk(rank, chunk) for n, chunk in flying), start=rank.nothing)
    here = LAYERS_ON_DEVICE * np.maximum.reduce([_of_layer(rank, one) for one in rank.kinds])
    return np.asarray(np.maximum(0.0, away - here))


def moved_in_micro_batch(rank: MegatronRank) -> FloatArray:
    """Bytes of one micro-batch that are copied out in forward, and back in backward."""
    return np.asarray(
        sum((moved_of_chunk(rank, chunk) for chunk in rank.shape.chunks), start=rank.nothing)
    )


def moved_of_chunk(rank: MegatronRank, chunk: Chunk) -> FloatArray:
    """Of one micro-batch on one virtual stage. Layers that are recomputed as a whole keep an input, which
    stays."""
    bytes_, before = rank.nothing, 0
    for layer, count in chunk.layers:
        whole, _ = recomputed_layers(rank, count, before)
        bytes_ = bytes_ + (count - whole) * _of_layer(rank, layer)
        before += count
    return bytes_


def _of_layer(rank: MegatronRank, layer: LayerSpec) -> FloatArray:
    """By each layout's recomputation; 0 where nothing is moved."""
    options, columns = rank.group.profile.megatron, rank.group.columns
    away = np.select(
        [columns.policy == SELECTIVE, columns.policy == OPERATIONS],
        [
            _bytes(rank, layer, options.recompute_modules),
            _bytes(rank, layer, options.discarded_modules),
        ],
        _bytes(rank, layer, ()),
    )
    return np.where(columns.offloads_activations, away, 0.0)


def _bytes(rank: MegatronRank, layer: LayerSpec, dropped: tuple[str, ...]) -> FloatArray:
    bytes_ = rank.nothing
    for tensor in moved_tensors(layer, rank.hidden_size, rank.settings, dropped):
        one = total([tensor]).on_rank(rank.tokens)
        is_large = one >= SMALLEST_ELEMENTS * rank.settings.element_bytes
        bytes_ = bytes_ + np.where(is_large, one, 0.0)
    return bytes_
