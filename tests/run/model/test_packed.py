"""Shards of packed matrices."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshfit.run.model.packed import Packing, pieces_of


@given(
    parts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    shards=st.integers(1, 4),
    dim=st.integers(0, 1),
    pieces=st.integers(1, 5),
)
def test_a_rank_holds_its_part_of_every_matrix_whatever_cuts_its_shard_further(
    parts, shards, dim, pieces
):
    sizes = [shards * part for part in parts]
    whole = np.arange(3 * sum(sizes)).reshape((sum(sizes), 3) if dim == 0 else (3, sum(sizes)))
    matrices = np.split(whole, np.cumsum(sizes)[:-1], axis=dim)
    packing = Packing(dim=dim, sizes=sizes, shards=shards)
    columns = sum(parts)
    for shard, piece in product(range(shards), range(pieces)):
        expected = np.concatenate(
            [np.split(matrix, shards, axis=dim)[shard] for matrix in matrices], axis=dim
        )
        cut = slice(piece * columns // pieces, (piece + 1) * columns // pieces)
        expected = np.take(expected, range(cut.start, cut.stop), axis=dim)
        box = [slice(0, 3), slice(0, 3)]
        box[dim] = slice(shard * columns + cut.start, shard * columns + cut.stop)
        found = np.full_like(expected, -1)
        for own, place in pieces_of(tuple(box), packing):
            found[own] = whole[place]
        assert (found == expected).all()


def test_what_is_not_packed_is_one_piece():
    box = (slice(2, 5), slice(0, 3))
    assert list(pieces_of(box, None)) == [((slice(0, 3), slice(0, 3)), box)]
