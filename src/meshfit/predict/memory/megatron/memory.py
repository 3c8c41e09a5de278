"""Peak memory of one pipeline rank under Megatron-Core, for all layouts that share its pipeline.

The peak is the largest of these moments of one micro-batch, while the schedule has most in flight.
``loss``: logits and their fp32 copy. ``loss_backward``: the softmax and the logits' gradient.
``head_backward``: that gradient and the head's weight gradient. ``layer_backward``: inside the last
layer, recomputed where it is. ``embedding_backward``: the embedding's gradient. ``optimizer``: fp32
copies of gradients that are kept in another type.

Ignored: padding of buckets and shards, scales, counters and rotary tables, and the rounding of
PyTorch's allocator, which leaves up to 1 MiB of a reused block unsplit.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.predict.memory.device import context_bytes, with_fragments
from meshfit.predict.memory.megatron import activations, buffers, offloaded
from meshfit.predict.memory.megatron.loss import loss_bytes
from meshfit.predict.memory.megatron.rank import MegatronRank
from meshfit.predict.memory.megatron.states import StateBytes, state_bytes
from meshfit.predict.memory.moments import at_peak
from meshfit.predict.memory.pytorch import RankMemory
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape

FloatArray = NDArray[np.float64]

MOMENTS: tuple[str, ...] = (
    "loss",
    "loss_backward",
    "head_backward",
    "layer_backward",
    "embedding_backward",
    "optimizer",
)

At = Mapping[str, FloatArray]
"""Bytes of one category by moment; a moment that is absent has none."""


def rank_memory(shape: RankShape, group: LayoutGroup) -> RankMemory:
    """Memory of one pipeline rank at its peak, for every layout of ``group``.

    Offloaded states are the optimizer's (``--optimizer-cpu-offload``), offloaded activations those of
    ``offloaded``.
    """
    rank = MegatronRank(shape=shape, group=group)
    states = state_bytes(shape, group)
    at: dict[str, At] = {
        "activations": _activations(rank),
        "logits_and_loss": _logits(rank),
        "temporary": _temporary(rank, states),
        "communication": _communication(rank),
    }
    nothing = rank.nothing
    stacked = {
        name: np.stack([each.get(moment, nothing) for moment in MOMENTS])
        for name, each in at.items()
    }
    moment, peak = at_peak(stacked)
    away = group.columns.offloads_states
    peak |= {
        "parameters": states.weights,
        "gradients": states.gradients,
        "optimizer": np.where(away, 0.0, states.optimizer),
    }
    categories = {name: peak.get(name, nothing) for name in MEMORY_CATEGORIES}
    allocated = np.asarray(sum(categories.values()))
    own_context = group.profile.context_bytes
    return RankMemory(
        categories=categories,
        moment=moment,
        reserved=with_fragments(allocated, group),
        context=nothing + own_context if own_context else context_bytes(group),
        host=np.where(away, states.optimizer, 0.0) + offloaded.moved(rank),
    )


def rest_bytes(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """What is allocated between steps: states, workspaces and standing buffers."""
    states = state_bytes(shape, group)
    held = states.weights + states.gradients + states.optimizer + states.main_gradients
    return held + buffers.standing(MegatronRank(shape=shape, group=group))


def _activations(rank: MegatronRank) -> At:
    kept = activations.kept(rank) - offloaded.moved(rank)
    head = activations.head_kept(rank) if rank.has_head else rank.nothing
    at = {"layer_backward": kept - head + activations.recomputed(rank)}
    if rank.has_head:
        at |= dict.fromkeys(("loss", "loss_backward", "head_backward"), kept)
    if rank.has_embedding:
        first = rank.shape.chunks[0]
        freed = activations.chunk_kept(rank, first) - offloaded.moved_of_chunk(rank, first)
        at["embedding_backward"] = kept - freed
    return at


def _logits(rank: MegatronRank) -> At:
    if not rank.has_head:
        return {}
    loss = loss_bytes(rank)
    return {
        "loss": loss.forward,
        "loss_backward": loss.backward,
        "head_backward": loss.head_backward,
        "layer_backward": loss.later,
    }


def _temporary(rank: MegatronRank, states: StateBytes) -> At:
    standing, vocabulary = buffers.standing(rank), buffers.vocabulary_gradient(rank)
    head = rank.nothing if rank.fuses_accumulation else vocabulary
    return {
        "loss": standing + buffers.attention_mask(rank),
        "loss_backward": standing,
        "head_backward": standing + (head if rank.has_head else 0.0),
        "layer_backward": standing + activations.backward(rank) + buffers.weight_gradient(rank),
        "embedding_backward": standing + (vocabulary if rank.has_embedding else 0.0),
        "optimizer": standing + states.main_gradients,
    }


def _communication(rank: MegatronRank) -> At:
    gathered, exchanged = buffers.gathered(rank), buffers.exchanged(rank)
    reducing = buffers.reducing(rank)
    return {
        "loss": gathered + exchanged,
        "loss_backward": gathered + exchanged,
        "head_backward": gathered + exchanged,
        "layer_backward": gathered + exchanged + reducing,
        "embedding_backward": gathered + exchanged + reducing,
    }
