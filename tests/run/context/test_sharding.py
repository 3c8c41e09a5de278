"""Shards of a sequence add up to it, and every rank of a causal exchange has the same work."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.mesh.spec import make_layout
from meshfit.run.context.sharding import SequenceShards, shards_of


@st.composite
def cut_sequences(draw: st.DrawFn) -> tuple[SequenceShards, int]:
    """A cut and a sequence length that it takes."""
    shards = SequenceShards(key_ranks=draw(st.integers(1, 8)), head_ranks=draw(st.integers(1, 4)))
    return shards, shards.parts * draw(st.integers(1, 5))


@given(cut_sequences())
def test_every_token_is_on_one_rank(cut: tuple[SequenceShards, int]) -> None:
    shards, length = cut
    held = [shards.positions(length, rank).tolist() for rank in range(_ranks(shards))]
    assert sorted(chain.from_iterable(held)) == list(range(length))
    assert len({len(positions) for positions in held}) == 1


@given(cut_sequences())
def test_what_a_rank_holds_is_in_the_order_of_the_sequence(
    cut: tuple[SequenceShards, int],
) -> None:
    shards, length = cut
    for rank in range(_ranks(shards)):
        positions = shards.positions(length, rank).tolist()
        assert positions == sorted(positions)


@given(cut_sequences())
def test_ranks_that_exchange_heads_see_their_parts_together(
    cut: tuple[SequenceShards, int],
) -> None:
    shards, length = cut
    for shard in range(shards.key_ranks):
        first = shard * shards.head_ranks
        parts = [
            shards.positions(length, first + part).tolist() for part in range(shards.head_ranks)
        ]
        assert list(chain.from_iterable(parts)) == shards.shared_positions(length, shard).tolist()


@given(cut_sequences())
def test_ranks_that_exchange_keys_have_equal_work(cut: tuple[SequenceShards, int]) -> None:
    """Keys that a rank's queries see, themselves included, under a causal mask."""
    shards, length = cut
    work = {
        int((shards.shared_positions(length, shard) + 1).sum()) for shard in range(shards.key_ranks)
    }
    assert len(work) == 1


def test_a_ring_of_two_holds_the_ends_and_the_middle() -> None:
    shards = shards_of(make_layout({"cp": 2}))
    assert [shards.positions(8, rank).tolist() for rank in (0, 1)] == [[0, 1, 6, 7], [2, 3, 4, 5]]


def test_an_exchange_of_heads_cuts_in_one_piece_a_rank() -> None:
    shards = shards_of(make_layout({"cp": 2, "cp_method": "all_to_all"}))
    assert [shards.positions(4, rank).tolist() for rank in (0, 1)] == [[0, 1], [2, 3]]


def test_a_hierarchical_exchange_cuts_the_shard_of_a_ring() -> None:
    layout = make_layout({"cp": 4, "cp_method": "hierarchical", "cp_inner": 2})
    positions = [shards_of(layout).positions(8, rank).tolist() for rank in range(4)]
    assert positions == [[0, 1], [6, 7], [2, 3], [4, 5]]


@pytest.mark.parametrize(("length", "would_do"), [(12, "8 or 16"), (3, "8 can")])
def test_a_length_that_cannot_be_cut_is_refused_with_one_that_can(
    length: int, would_do: str
) -> None:
    with pytest.raises(InputError, match=f"sequence_length={length} .* 8 equal parts.* {would_do}"):
        shards_of(make_layout({"cp": 4})).positions(length, 0)


def _ranks(shards: SequenceShards) -> int:
    return shards.key_ranks * shards.head_ranks
