"""Auxiliary losses and biases."""

import pytest

from tests.run.experts.world import run_ranks

TOKENS, EXPERTS, CHOICES = 16, 4, 2


def logits(layer: int):
    import torch

    return torch.randn(TOKENS, EXPERTS, generator=torch.Generator().manual_seed(layer))


def routed(rows):
    """Scores and choices of router logits."""
    scores = rows.softmax(dim=-1)
    return scores, scores.topk(CHOICES, dim=-1).indices


@pytest.mark.parametrize("layers", [1, 3])
def test_auxiliary_loss_and_its_gradient_are_those_of_transformers(layers: int) -> None:
    import torch
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    from meshfit.run.experts.balance import AuxiliaryLoss

    ours = [logits(layer).requires_grad_() for layer in range(layers)]
    theirs = [logits(layer).requires_grad_() for layer in range(layers)]
    loss = AuxiliaryLoss(None, None)
    for rows in ours:
        loss.add(*routed(rows))
    expected = load_balancing_loss_func(tuple(theirs), EXPERTS, CHOICES)
    found = loss.take()
    assert torch.allclose(found, expected)
    found.backward()
    expected.backward()
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine.grad, other.grad, atol=1e-7)


def test_one_process_takes_the_mean_of_the_micro_batches_that_it_stands_for() -> None:
    import torch

    from meshfit.run.experts.balance import AuxiliaryLoss
    from meshfit.run.experts.capacity import TokenGroups

    rows = logits(0)
    whole = AuxiliaryLoss(TokenGroups(sequence_length=4, sequences=2, shards=2), None)
    whole.add(*routed(rows))
    parts = []
    for part in rows.chunk(2):
        one = AuxiliaryLoss(None, None)
        one.add(*routed(part))
        parts.append(one.take())
    assert torch.allclose(whole.take(), torch.stack(parts).mean())


def test_ranks_that_share_sequences_have_the_loss_of_all_their_tokens() -> None:
    import torch
    from torch.distributed import group

    from meshfit.run.experts.balance import AuxiliaryLoss

    rows = logits(0).requires_grad_()
    alone = AuxiliaryLoss(None, None)
    alone.add(*routed(rows))
    expected = alone.take()
    expected.backward()

    def one(rank: int):
        own = rows.detach().chunk(2)[rank].clone().requires_grad_()
        loss = AuxiliaryLoss(None, group.WORLD)
        loss.add(*routed(own))
        value = loss.take()
        value.backward()
        return value.detach(), own.grad

    found = run_ranks(2, one)
    assert all(torch.allclose(value, expected) for value, _ in found)
    assert torch.allclose(torch.cat([grad for _, grad in found]), rows.grad, atol=1e-7)


def test_biases_rise_where_experts_have_too_few_copies_and_fall_where_too_many() -> None:
    import torch

    from meshfit.run.experts.balance import move_biases

    bias = torch.zeros(4)
    move_biases([bias], torch.tensor([[10, 0, 5, 5]]), 0.001)
    assert bias.tolist() == pytest.approx([-0.001, 0.001, 0.0, 0.0])
