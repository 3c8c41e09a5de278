"""Logits, loss and their gradients on the rank that has the head."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.megatron.rank import MegatronRank
from meshfit.predict.shape.layer_basis import FP32_BYTES

FloatArray = NDArray[np.float64]

LABEL_BYTES = 45
"""A token around the loss: label, mask, index into the logits, maximum, sums and the loss."""


@dataclass(frozen=True, kw_only=True)
class LossBytes:
    """At the three moments around the loss, and what stays for later."""

    forward: FloatArray
    backward: FloatArray
    head_backward: FloatArray
    later: FloatArray


def loss_bytes(rank: MegatronRank) -> LossBytes:
    """Every head for multi-token prediction has a loss of its own, which waits for its backward
    while the next is computed."""
    group, element = rank.group, rank.settings.element_bytes
    entries = group.columns.tokens * rank.vocabulary
    labels = group.columns.tokens * LABEL_BYTES
    options = group.profile.megatron
    kernel = options.loss_kernel if group.training.runtime.loss == "fused" else "plain"
    forward, backward = bytes_per_logit(kernel, element)
    deferred = _deferred(rank, entries)
    mtp_heads = group.model.mtp.depth if group.model.mtp else 0
    waiting = entries * mtp_heads * (backward - element) + labels + deferred
    return LossBytes(
        forward=waiting + entries * forward,
        backward=waiting + entries * backward,
        head_backward=waiting + entries * element,
        later=deferred,
    )


def bytes_per_logit(kernel: str, element: int) -> tuple[int, int]:
    """While the loss, and while its gradient is computed.

    ``plain`` (``VocabParallelCrossEntropy``): an fp32 copy beside the logits, worked on in place,
    then the gradient in the logits' type. ``native`` compiles the same steps, which makes one more
    fp32 copy; ``te`` writes the gradient over the logits.
    """
    if kernel == "te":
        return element, element
    copy = 0 if element == FP32_BYTES else FP32_BYTES
    more = FP32_BYTES if kernel == "native" else 0
    return element + copy + more, element + copy


def _deferred(rank: MegatronRank, entries: FloatArray) -> FloatArray:
    """Logit gradients and head inputs of micro-batches whose weight gradient waits."""
    limit, columns = rank.group.profile.megatron.deferred_head_gradients, rank.group.columns
    waiting = columns.micro_batches if limit < 0 else np.minimum(limit, columns.micro_batches)
    inputs = columns.tokens * rank.hidden_size
    return np.asarray(waiting * (entries + inputs) * rank.settings.element_bytes)
