from collections.abc import Sequence

import pytest

from meshfit.breakdown import TimeBreakdown
from meshfit.compare.stragglers import rank_scores
from meshfit.record.schema import RankReport, StepProfile


def report(
    rank: int, *, own_s: float | None = None, step_s: Sequence[float] = (1.0,) * 5, stage: int = 0
) -> RankReport:
    profile = None
    if own_s is not None:
        time = TimeBreakdown(compute=own_s, exposed={"all_reduce.dp_replicate": 10.0 - own_s})
        profile = StepProfile(time=time, waiting_s=10.0 - own_s, communication_s=10.0 - own_s)
    return RankReport(
        rank=rank,
        host="host0",
        step_s=tuple(step_s),
        input_wait_s=(0.0,) * len(step_s),
        memory=None,
        stage=stage,
        profile=profile,
    )


def test_a_rank_five_times_slower_scores_a_fifth_although_all_steps_take_equally_long() -> None:
    fast, slow = rank_scores([report(0, own_s=1.0), report(1, own_s=5.0)], warmup_steps=0)
    assert (fast.relative, slow.relative) == (1.0, pytest.approx(0.2))
    assert (fast.is_straggler, slow.is_straggler) == (False, True)


def test_ranks_of_a_stage_are_compared_with_each_other() -> None:
    ranks = [report(rank, own_s=1.0 + 4 * (rank // 2), stage=rank // 2) for rank in range(4)]
    assert [score.relative for score in rank_scores(ranks, warmup_steps=0)] == [1.0] * 4


def test_where_each_stage_has_one_rank_a_slow_stage_is_named() -> None:
    ranks = [report(rank, own_s=1.0 + 4 * rank, stage=rank) for rank in range(2)]
    assert [score.is_straggler for score in rank_scores(ranks, warmup_steps=0)] == [False, True]


def test_a_rank_that_became_slow_is_told_by_its_own_past() -> None:
    steps = [9.0, *[1.0] * 9, *[2.0] * 3]
    (score,) = rank_scores([report(0, step_s=steps)], warmup_steps=1)
    assert (score.relative, score.individual) == (None, 0.5)
    assert score.is_straggler


def test_too_few_steps_have_no_past() -> None:
    (score,) = rank_scores([report(0)], warmup_steps=0)
    assert score.individual is None
    assert not score.is_straggler
