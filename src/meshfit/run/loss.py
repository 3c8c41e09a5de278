"""The loss of a language model over a whole optimizer step."""

from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORED = -100
"""Label of a position that does not count."""


def token_loss_sum(logits_BSV: Tensor, labels_BS: Tensor, *, scale: float = 1.0) -> Tensor:
    """Sum over the counted tokens of the cross entropy, in fp32, times ``scale``.

    A mean over each micro-batch, averaged again, weighs tokens by how full their micro-batch is;
    with ``scale = 1 / (valid tokens of the whole step)`` every token weighs the same.
    """
    loss = cross_entropy(
        logits_BSV.float().flatten(0, 1),
        labels_BS.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
    )
    return loss * scale
