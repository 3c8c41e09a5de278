from itertools import combinations
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.sweeps.regret import (
    TimedLayout,
    mean_regret_of_random,
    pairs_in_order,
    score_shortlist,
    step_errors,
)


def timed(label: str, predicted_s: float, *repeats_s: float, noise_s: float = 0.0) -> TimedLayout:
    return TimedLayout(
        label=label,
        predicted_s=predicted_s,
        measured_s=mean(repeats_s),
        noise_s=noise_s,
        repeat_medians_s=repeats_s,
    )


SWEEP = [
    timed("a", 1.0, 3.0, 3.0),
    timed("b", 2.0, 2.0, 2.6),
    timed("c", 3.0, 2.1, 1.9, noise_s=0.2),
    timed("d", 4.0, 4.0, 4.0),
]


def test_a_shortlist_without_the_best_is_charged_what_its_own_best_takes_more() -> None:
    score = score_shortlist(SWEEP, ["a", "b"])
    assert (score.layouts, score.best, score.best_s, score.place_of_best) == (4, "c", 2.0, 3)
    assert (score.chosen, score.chosen_regret) == ("a", 0.5)
    assert (score.holds_best, score.holds_tied) == (False, False)
    assert score.shortlist_regret == pytest.approx(0.15)
    assert (score.repeats, score.repeats_held) == (2, 1)
    assert score.random_holds_best == 0.5


def test_a_layout_that_cannot_be_told_from_the_best_is_as_good() -> None:
    near = [*SWEEP[:1], timed("b", 2.0, 2.2, 2.2, noise_s=0.05), *SWEEP[2:]]
    score = score_shortlist(near, ["a", "b"])
    assert (score.tied, score.holds_best, score.holds_tied) == (1, False, True)


def test_a_shortlist_that_holds_the_best_loses_nothing() -> None:
    score = score_shortlist(SWEEP, ["d", "c"])
    assert (score.holds_best, score.holds_tied, score.shortlist_regret) == (True, True, 0.0)


seconds = st.lists(st.floats(0.1, 10), min_size=1, max_size=7)


@given(seconds=seconds, data=st.data())
def test_the_regret_of_a_random_shortlist_is_the_mean_over_all_of_them(
    seconds: list[float], data: st.DataObject
) -> None:
    length = data.draw(st.integers(1, len(seconds)))
    every = [min(drawn) / min(seconds) - 1 for drawn in combinations(seconds, length)]
    assert mean_regret_of_random(seconds, length=length) == pytest.approx(mean(every), abs=1e-9)


def test_errors_of_steps_are_absolute_but_for_the_bias() -> None:
    layouts = [timed("a", 0.5, 1.0), timed("b", 1.8, 2.0), timed("c", 4.4, 4.0)]
    assert step_errors(layouts) == pytest.approx({"median": 0.1, "p90": 0.42, "bias": -0.1})


def test_only_pairs_that_differ_clearly_have_an_order() -> None:
    assert pairs_in_order([timed("a", 1, 1.0), timed("b", 2, 1.04)]) is None
    assert pairs_in_order([timed("a", 1, 1.0), timed("b", 2, 1.06)]) == 1
    assert pairs_in_order([timed("a", 2, 1.0), timed("b", 1, 1.06), timed("c", 3, 2.0)]) == 2 / 3


@given(st.permutations(range(6)))
def test_predictions_in_the_measured_order_have_every_pair_right(order: list[int]) -> None:
    layouts = [timed(str(i), float(place), 1.0 + place) for i, place in enumerate(order)]
    assert pairs_in_order(layouts) == 1
    upside_down = [timed(str(i), -float(place), 1.0 + place) for i, place in enumerate(order)]
    assert pairs_in_order(upside_down) == 0
