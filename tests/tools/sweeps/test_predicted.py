import pytest

from tools.sweeps.predicted import PredictedStep, pairs_apart, wrong_pairs


def step(predicted_s, measured_s, *, exposed_s=0.0, label="tp=2"):
    return PredictedStep(
        label=label, rank_order=("tp",), levels={}, predicted_s=predicted_s, exposed_s=exposed_s,
        measured_s=measured_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("predicted", "measured", "is_near"),
    [
        (1.0, 1.0, True),
        (1.19, 1.0, True),
        (0.81, 1.0, True),
        (1.21, 1.0, False),
        (0.79, 1.0, False),
    ],
)
def test_near_is_within_a_fifth_of_what_was_measured(predicted, measured, is_near):
    assert step(predicted, measured).is_near is is_near


def test_a_step_is_network_bound_from_half_of_it_on():
    assert step(2.0, 2.0, exposed_s=1.0).is_network_bound
    assert not step(2.0, 2.0, exposed_s=0.9).is_network_bound


def test_a_pair_that_is_clearly_apart_and_predicted_the_other_way_is_wrong():
    fast, slow = step(2.0, 1.0), step(1.0, 1.2)
    assert wrong_pairs([slow, fast]) == [(fast, slow)]
    assert wrong_pairs([step(1.0, 1.0), step(2.0, 1.2)]) == []


def test_the_order_of_steps_that_hardly_differ_is_not_judged():
    steps = [step(2.0, 1.0), step(1.0, 1.1), step(3.0, 1.3)]
    assert wrong_pairs(steps) == []
    assert pairs_apart(steps) == 2
