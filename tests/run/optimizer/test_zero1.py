"""Which rank steps which parameter. What comes of it: tests/run/test_parity*.py."""

from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 5))
def test_every_parameter_has_one_owner_and_shares_are_as_even_as_the_largest_allows(sizes, ranks):
    import torch

    from meshfit.run.optimizer.zero1 import shares

    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    dealt = shares(parameters, ranks)
    assert len(dealt) == ranks
    assert sorted(id(one) for share in dealt for one in share) == sorted(map(id, parameters))
    held = [sum(one.numel() for one in share) for share in dealt]
    assert max(held) - min(held) <= max(sizes, default=0)


def test_a_rank_without_a_share_has_an_optimizer_of_nothing():
    import torch

    optimizer = torch.optim.AdamW([{"params": []}], fused=True)
    optimizer.step()
    assert not optimizer.state
