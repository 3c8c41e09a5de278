"""Micro-batches in flight, against Megatron-Core's own count of warm-up forwards."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshfit.predict.shape.schedule import Pipeline, in_flight
from tests.predict.memory.megatron.builders import gpt


def pipeline(pp: int, vpp: int = 1, schedule: str | None = None) -> Pipeline:
    return Pipeline(
        pp=pp,
        vpp=vpp,
        schedule=schedule or ("interleaved_1f1b" if vpp > 1 else "1f1b"),
        stage_layers=(1,) * (pp * vpp),
        model=gpt(num_layers=pp * vpp),
    )


def held(of: Pipeline, rank: int, micro_batches: int, size: int | None = None) -> list[int]:
    round_sizes = np.minimum(size or of.pp, np.array([micro_batches]))
    found = in_flight(of, rank, np.array([micro_batches]), round_sizes=round_sizes)
    return [int(count[0]) for count in found.per_chunk]


def test_one_forward_one_backward_holds_as_many_as_stages_behind() -> None:
    assert [held(pipeline(4), rank, 8) for rank in range(4)] == [[4], [3], [2], [1]]


def test_fewer_micro_batches_than_stages_are_all_in_flight() -> None:
    assert held(pipeline(4), 0, 2) == [2]


def test_the_last_rank_of_an_interleaved_pipeline_holds_a_round_of_all_stages_but_its_last() -> (
    None
):
    assert held(pipeline(4, vpp=3), 3, 16) == [4, 4, 1]


def test_earlier_ranks_start_two_more_forwards_a_rank() -> None:
    assert sum(held(pipeline(4, vpp=3), 0, 16)) == sum(held(pipeline(4, vpp=3), 3, 16)) + 6


def test_a_larger_group_of_micro_batches_holds_more() -> None:
    assert held(pipeline(4, vpp=3), 3, 16, size=5) == [5, 5, 1]


def test_gpipe_holds_them_all() -> None:
    assert held(pipeline(2, schedule="gpipe"), 1, 7) == [7]


@given(
    pp=st.integers(2, 8),
    vpp=st.integers(2, 4),
    rounds=st.integers(1, 6),
    rank=st.integers(0, 7),
)
def test_never_more_than_there_are(pp: int, vpp: int, rounds: int, rank: int) -> None:
    rank, micro_batches = min(rank, pp - 1), rounds * pp
    counts = held(pipeline(pp, vpp), rank, micro_batches)
    assert all(0 <= count <= micro_batches for count in counts)
    warm_up = (vpp - 1) * pp + 2 * (pp - 1 - rank)
    assert sum(counts) == min(warm_up + 1, micro_batches * vpp)
