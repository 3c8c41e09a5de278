"""The loss over a whole optimizer step."""

import pytest


def logits_with_loss(loss: float):
    """Logits of two tokens for which the cross entropy of label 0 is ``loss``."""
    import math

    return [0.0, math.log(math.exp(loss) - 1)]


def test_micro_batches_weigh_by_their_valid_tokens() -> None:
    """100 tokens that sum to 300 and 900 that sum to 1800 are 2.1 a token, not 2.5."""
    import torch

    from meshfit.run.model.loss import IGNORED, token_loss_sum

    total = 0.0
    for valid, loss in ((100, 3.0), (900, 2.0)):
        logits = torch.tensor(logits_with_loss(loss)).expand(1, 1000, 2)
        labels = torch.full((1, 1000), IGNORED)
        labels[:, :valid] = 0
        total += token_loss_sum(logits, labels, scale=1 / 1000).item()
    assert total == pytest.approx(2.1, rel=1e-6)


def test_low_precision_logits_are_summed_in_fp32() -> None:
    import torch

    from meshfit.run.model.loss import token_loss_sum

    logits = torch.zeros(1, 1000, 2, dtype=torch.bfloat16)
    loss = token_loss_sum(logits, torch.zeros(1, 1000, dtype=torch.int64))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(1000 * 0.6931472, rel=1e-6)
