"""Experts without values: loads are even, matmuls are one."""

import pytest


@pytest.mark.parametrize(("rows", "ranks"), [(8, 4), (10, 4), (0, 2), (3, 8)])
def test_every_row_is_sent_and_loads_are_as_even_as_can_be(rows: int, ranks: int) -> None:
    import torch

    from meshfit.dryrun.experts import even_loads
    from meshfit.run.experts import dispatch

    with even_loads():
        unknown = torch.empty(ranks)
        send, receive = dispatch.message_sizes(unknown, unknown, rows)
    assert sum(send) == rows
    assert max(send) - min(send) <= 1
    assert set(receive) == {max(send)}


def test_a_layer_of_one_expert_is_computed_as_it_is_outside() -> None:
    import torch

    from meshfit.dryrun.experts import even_loads
    from meshfit.run.experts.layer import grouped_linear

    def outcome():
        torch.manual_seed(0)
        rows = torch.randn(6, 8, requires_grad=True)
        weight = torch.randn(1, 4, 8, requires_grad=True)
        output = grouped_linear(rows, weight, torch.tensor([6], dtype=torch.int32))
        return output, *torch.autograd.grad(output, (rows, weight), torch.ones(6, 4))

    real = outcome()
    with even_loads():
        fake = outcome()
    for ours, theirs in zip(fake, real, strict=True):
        assert ours.shape == theirs.shape
        assert torch.allclose(ours, theirs, atol=1e-6)
