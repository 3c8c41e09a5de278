"""The loss of a language model over a whole optimizer step."""

from contextlib import AbstractContextManager, nullcontext

from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORED = -100
"""Label of a position that does not count."""


def token_loss_sum(logits_BSV: Tensor, labels_BS: Tensor, *, scale: float = 1.0) -> Tensor:
    """Sum over the counted tokens of the cross entropy, in fp32, times ``scale``.

    A mean over each micro-batch, averaged again, weighs tokens by how full their micro-batch is;
    with ``scale = 1 / (valid tokens of the whole step)`` every token weighs the same. Logits may be a
    DTensor divided over the vocabulary, inside ``divided_logits``.
    """
    return _cross_entropy(logits_BSV, labels_BS, "sum") * scale


def token_losses(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """The cross entropy of every token in fp32, [B, S]; 0 where it does not count."""
    return _cross_entropy(logits_BSV, labels_BS, "none").view_as(labels_BS)


def _cross_entropy(logits_BSV: Tensor, labels_BS: Tensor, reduction: str) -> Tensor:
    loss = cross_entropy(
        logits_BSV.float().flatten(0, 1),
        labels_BS.flatten(),
        ignore_index=IGNORED,
        reduction=reduction,
    )
    return loss.to_local() if hasattr(loss, "placements") else loss


def divided_logits(tp: int) -> AbstractContextManager[None]:
    """The context for losses of logits that tensor parallelism divides, and for their backwards."""
    if tp == 1:
        return nullcontext()
    from torch.distributed.tensor.parallel import loss_parallel  # noqa: PLC0415

    return loss_parallel()
