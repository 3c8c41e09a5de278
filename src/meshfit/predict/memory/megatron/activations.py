"""What autograd keeps on one pipeline rank, and what is made again before backward."""

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import RECOMPUTE
from meshfit.predict.memory.megatron.rank import MegatronRank
from meshfit.predict.memory.megatron.tensors import Saved, total
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.predict.shape.schedule import Chunk

FloatArray = NDArray[np.float64]

FULL, BLOCK, SELECTIVE, OPERATIONS = (
    RECOMPUTE.index(name) for name in ("full", "block", "selective", "operations")
)


def kept(rank: MegatronRank) -> FloatArray:
    """Of all micro-batches in flight."""
    chunks = rank.shape.chunks
    each = {chunk: chunk_kept(rank, chunk) for chunk in dict.fromkeys(chunks)}
    flying = zip(rank.micro_batches, chunks, strict=True)
    return np.asarray(sum(n * each[chunk] for n, chunk in flying))


def chunk_kept(rank: MegatronRank, chunk: Chunk) -> FloatArray:
    """Of one micro-batch on one virtual stage.

    A stage's output is freed once it is sent (``deallocate_pipeline_outputs``); its input is what
    the first layer keeps.
    """
    recompute = rank.group.candidates.recompute
    bytes_, before = rank.nothing, 0
    for layer, count in chunk.layers:
        kind = rank.kinds[layer]
        whole, inputs = recomputed_layers(rank, count, before)
        each = kind.kept - np.select(
            [recompute == SELECTIVE, recompute == OPERATIONS], [kind.dropped, kind.discarded], 0.0
        )
        bytes_ = bytes_ + (count - whole) * each + inputs * rank.boundary
        before += count
    if chunk.has_embedding and rank.settings.hidden_dropout:
        mask = Saved(name="embedding.mask", bytes_per_token=rank.hidden_size, split="sequence")
        bytes_ = bytes_ + total([mask]).on_rank(rank.tokens)
    if chunk.has_head:
        bytes_ = bytes_ + head_kept(rank)
    return bytes_


def head_kept(rank: MegatronRank) -> FloatArray:
    """Input, statistics and output of the final norm; heads for multi-token prediction."""
    mtp, each = rank.group.model.mtp, total([_final_norm(rank)]).on_rank(rank.tokens)
    if mtp is None:
        return each
    layers = sum((rank.kinds[layer].kept for layer in mtp.layers), start=rank.nothing)
    entry = total([_mtp_entry(rank)]).on_rank(rank.tokens)
    return np.asarray(each + mtp.depth * (entry + layers + each))


def _final_norm(rank: MegatronRank) -> Saved:
    settings = rank.settings
    wide = 2 * settings.element_bytes * rank.hidden_size
    narrow = FP32_BYTES * settings.norm_statistics
    return Saved(name="final_norm", bytes_per_token=wide + narrow, split="sequence")


def _mtp_entry(rank: MegatronRank) -> Saved:
    """The embedding and the hidden states that go into one such head, and both normalised, side by
    side: what its projection keeps (``MultiTokenPredictionLayer``)."""
    wide = 4 * rank.settings.element_bytes * rank.hidden_size
    return Saved(name="mtp.entry", bytes_per_token=wide, split="sequence")


def recomputed(rank: MegatronRank) -> FloatArray:
    """What is made again before the backward of one checkpoint: the layers of one, or the parts
    that were dropped in one layer."""
    recompute, layers = rank.group.candidates.recompute, rank.group.candidates.recompute_layers
    whole, part, discarded = rank.nothing, rank.nothing, rank.nothing
    for kind in rank.kinds.values():
        whole, part = np.maximum(whole, kind.kept), np.maximum(part, kind.dropped)
        discarded = np.maximum(discarded, kind.discarded)
    largest = max((chunk.num_layers for chunk in rank.shape.chunks), default=0)
    at_once = np.minimum(layers, largest)
    return np.select(
        [
            recompute == FULL,
            (recompute == BLOCK) & (layers > 0),
            recompute == SELECTIVE,
            recompute == OPERATIONS,
        ],
        [whole * at_once - rank.boundary, whole - rank.boundary, part, discarded],
        default=0.0,
    )


def backward(rank: MegatronRank) -> FloatArray:
    """The most that the backward of one layer holds beyond what is kept."""
    each = [kind.backward for kind in rank.kinds.values()]
    return np.asarray(np.maximum.reduce([rank.nothing, *each]))


def recomputed_layers(rank: MegatronRank, count: int, before: int) -> tuple[FloatArray, FloatArray]:
    """Of ``count`` layers of a stage with ``before`` others in front: how many are recomputed as a
    whole, and how many inputs are kept for that (one for every ``recompute_layers`` layers under
    ``full``, one each under ``block``)."""
    recompute, layers = rank.group.candidates.recompute, rank.group.candidates.recompute_layers
    first = np.clip(layers - before, 0, count)
    whole = np.where(recompute == FULL, count, np.where(recompute == BLOCK, first, 0))
    inputs = np.where(recompute == FULL, np.ceil(count / np.maximum(layers, 1)), whole)
    options, columns = rank.group.profile.megatron, rank.group.columns
    if options.checkpoints_on_host:
        inputs = np.zeros(len(rank.group))
    elif options.distributed_checkpoints:
        inputs = inputs * columns.sequence_split / columns.tp
    return whole, inputs
