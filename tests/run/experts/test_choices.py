"""Router choices of a reference, found again for the tokens of one rank."""

from pathlib import Path

SEQUENCES, LENGTH, STEP, LAYER = 4, 6, 1, 3


def reference_in(folder: Path):
    """A process that saw all sequences, two at a time; its choice names sequence and position."""
    import torch

    from meshfit.run.experts.choices import KeptChoices

    kept = KeptChoices(num_steps=2)
    kept.begin_step(STEP)
    whole = torch.stack(
        [torch.arange(SEQUENCES).repeat_interleave(LENGTH), torch.arange(LENGTH).repeat(SEQUENCES)],
        dim=1,
    )
    for part in whole.chunk(2):
        kept.take(LAYER, part)
    kept.save(folder)


def of_rank(folder: Path, *, first: int, shard: int):
    """What concerns a rank with two sequences from ``first`` on, one at a time, and a half of each."""
    import torch

    from meshfit.run.experts.choices import ReferenceChoices, TokensOfRank

    tokens = TokensOfRank(
        sequence_length=LENGTH,
        first=first,
        micro_batch_size=1,
        positions=torch.arange(LENGTH).chunk(2)[shard],
    )
    return ReferenceChoices(folder=folder, tokens=tokens)


def test_a_rank_takes_the_choices_of_its_own_sequences_and_positions(tmp_path: Path) -> None:
    import torch

    from meshfit.run.experts.choices import ReplayedChoices

    reference_in(tmp_path)
    replayed = ReplayedChoices(of_rank(tmp_path, first=2, shard=1))
    replayed.begin_step(STEP)
    own = torch.zeros(3, 2, dtype=torch.int64)
    assert replayed.take(LAYER, own).tolist() == [[2, 3], [2, 4], [2, 5]]
    assert replayed.take(LAYER, own).tolist() == [[3, 3], [3, 4], [3, 5]]


def test_recomputation_is_given_the_choices_of_its_forward_again(tmp_path: Path) -> None:
    import torch
    from torch.utils.checkpoint import checkpoint

    from meshfit.run.experts.choices import ReplayedChoices

    reference_in(tmp_path)
    replayed = ReplayedChoices(of_rank(tmp_path, first=0, shard=0))
    replayed.begin_step(STEP)
    taken = []

    def forward(x):
        taken.append(replayed.take(LAYER, torch.zeros(3, 2, dtype=torch.int64)).tolist())
        return x.sin()

    outputs = [
        checkpoint(forward, torch.ones(3, requires_grad=True), use_reentrant=False)
        for _ in range(2)
    ]
    for output in outputs:
        output.sum().backward()
    first, second, first_again, second_again = taken
    assert first != second
    assert (first_again, second_again) == (first, second)


def test_only_tokens_with_other_experts_differ_whatever_their_order(tmp_path: Path) -> None:
    import torch

    from meshfit.run.experts.choices import KeptChoices

    reference_in(tmp_path)
    kept = KeptChoices(num_steps=2)
    kept.begin_step(STEP)
    kept.take(LAYER, torch.tensor([[0, 0], [1, 0], [2, 0]]))  # the reference's, some turned round
    kept.take(LAYER, torch.tensor([[1, 0], [7, 1], [7, 7]]))
    assert kept.differing(of_rank(tmp_path, first=0, shard=0)) == 2


def test_steps_that_are_not_judged_are_not_kept(tmp_path: Path) -> None:
    import torch

    from meshfit.run.experts.choices import KeptChoices

    kept = KeptChoices(num_steps=1)
    kept.begin_step(1)
    kept.take(LAYER, torch.zeros(3, 2, dtype=torch.int64))
    reference_in(tmp_path)
    assert kept.differing(of_rank(tmp_path, first=0, shard=0)) == 0
