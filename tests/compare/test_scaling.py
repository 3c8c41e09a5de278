from typing import Any

import pytest

from meshfit.compare.scaling import Scaled, ScalingPoint, scaling


def point(ranks: int, tokens_per_s: float | None, **conditions: Any) -> ScalingPoint:
    return ScalingPoint(
        ranks=ranks,
        label=f"dp_replicate={ranks}",
        tokens_per_s=tokens_per_s,
        step_time_s=None,
        global_batch=16,
        sequence_length=128,
        hardware="cpu",
        conditions={"global batch": 16, "ranks a core": 1, **conditions},
        outcome="ok" if tokens_per_s else "out_of_memory",
    )


def efficiencies(scaled: list[Scaled]) -> list[float | None]:
    return [one.efficiency for one in scaled]


def test_the_denominator_is_the_baselines_rate_per_rank_times_the_ranks() -> None:
    scaled = scaling([point(4, 300.0), point(1, 100.0), point(2, 180.0)])
    assert [one.denominator_tokens_per_s for one in scaled] == [100.0, 200.0, 400.0]
    assert efficiencies(scaled) == [1.0, 0.9, 0.75]
    assert {one.baseline_ranks for one in scaled} == {1}


def test_a_baseline_of_several_ranks_counts_for_as_many() -> None:
    (_, four) = scaling([point(2, 100.0), point(4, 150.0)])
    assert four.denominator_tokens_per_s == 200.0
    assert four.efficiency == 0.75


def test_more_than_all_between_unequal_points_is_refused_with_what_differs() -> None:
    (_, two) = scaling([point(1, 100.0, micro_batch=1), point(2, 250.0, micro_batch=8)])
    assert two.efficiency is None
    assert two.refused == "125.0% of a baseline that is not its equal: micro_batch 1 -> 8"


def test_less_than_all_between_unequal_points_stands_beside_what_differs() -> None:
    (_, four) = scaling([point(1, 100.0), point(4, 200.0, **{"ranks a core": 2})])
    assert four.efficiency == 0.5
    assert four.differing == ("ranks a core 1 -> 2",)


def test_more_than_all_between_equal_points_stands() -> None:
    (_, two) = scaling([point(1, 100.0), point(2, 210.0)])
    assert two.efficiency == pytest.approx(1.05)


def test_a_point_that_failed_has_none_and_is_no_baseline() -> None:
    failed, two, four = scaling([point(1, None), point(2, 100.0), point(4, 100.0)])
    assert failed.refused == "it did not run (out of memory)"
    assert (two.efficiency, four.efficiency) == (1.0, 0.5)


def test_without_any_point_that_ran_nothing_is_claimed() -> None:
    (one,) = scaling([point(1, None)])
    assert (one.efficiency, one.refused) == (None, "no point ran")
