import pytest

from meshfit.validate.figures import Figures
from meshfit.validate.order_scores import measured_speed, order_score, predicted_speed
from tests.validate.builders import figures, row


def layouts(*speeds, group="g"):
    """One row a speed, each with another tensor parallel degree."""
    return [
        row(id=f"ROW-{n}", tp=str(2**n), rank_group=group, tokens_s_gpu=str(speed))
        for n, speed in enumerate(speeds)
    ]


def guesses(rows, speeds):
    table = {one.id: speed for one, speed in zip(rows, speeds, strict=True)}
    return lambda one: table[one.id]


def test_every_pair_the_right_way_round_is_one():
    rows = layouts(100, 200, 400)
    found = order_score(rows, guesses(rows, [1, 2, 3]), wide=False)
    assert (found.pairs, found.groups) == (3, 1)
    assert (found.pairs_right, found.top1, found.mean_regret) == (1.0, 1.0, 0.0)


def test_every_pair_the_wrong_way_round_is_nothing_and_costs_the_best():
    rows = layouts(100, 200, 400)
    found = order_score(rows, guesses(rows, [3, 2, 1]), wide=False)
    assert found.pairs_right == 0.0
    assert found.mean_regret == pytest.approx(0.75)


def test_speeds_within_five_per_cent_are_no_pair():
    rows = layouts(100, 104)
    assert order_score(rows, guesses(rows, [1, 2]), wide=False).pairs == 0


def test_equal_predictions_are_half_right():
    rows = layouts(100, 200)
    assert order_score(rows, guesses(rows, [1.0, 1.0005]), wide=False).pairs_right == 0.5


def test_what_is_not_predicted_is_wrong():
    rows = layouts(100, 200)
    found = order_score(rows, lambda _: None, wide=False)
    assert (found.pairs_right, found.mean_regret) == (0.0, 1.0)


def test_groups_weigh_the_same_whatever_their_pairs():
    right, wrong = layouts(100, 200, 400, group="a"), layouts(100, 200, group="b")
    found = order_score([*right, *wrong], lambda one: 1 / one.number("tp"), wide=False)
    assert found.groups == 2
    assert found.pairs_right == 0.0
    rising = order_score([*right, *wrong], lambda one: one.number("tp"), wide=False)
    assert rising.groups_right == 1.0


def test_repeats_of_one_layout_are_one_point_at_their_median():
    rows = [*layouts(100, 200), *layouts(300, 200)]
    found = order_score(rows, lambda one: one.number("tp"), wide=False)
    assert found.pairs == 0


def test_layouts_that_differ_in_no_degree_do_not_compare():
    rows = [row(id="a", rank_group="g", tokens_s_gpu="100", mbs="1"),
            row(id="b", rank_group="g", tokens_s_gpu="200", mbs="2")]  # fmt: skip
    assert order_score(rows, lambda _: 1.0, wide=False).pairs == 0


def test_wide_needs_no_printed_group():
    rows = layouts(100, 200, group="")
    assert order_score(rows, lambda one: one.number("tp"), wide=False).pairs == 0
    assert order_score(rows, lambda one: one.number("tp"), wide=True).pairs == 1


def test_no_pairs_have_no_shares():
    assert order_score([], lambda _: 1.0, wide=True).as_json() == {"pairs": 0, "groups": 0}


def test_speed_is_tokens_before_flops():
    assert measured_speed(row(tokens_s_gpu="10", tflops_gpu="400")) == ("tokens", 10.0)
    assert measured_speed(row(tflops_gpu="400", tflops_kind="model")) == ("tflops model", 400.0)
    assert measured_speed(row()) is None


def test_tokens_follow_from_the_step():
    # 64 sequences of 8192 tokens in 2 s on 8 accelerators
    assert measured_speed(row(step_time_s="2")) == ("tokens", 64 * 8192 / 8 / 2)


def test_predicted_speed_is_tokens_a_second_and_accelerator():
    speed = predicted_speed(figures(Figures(id="ROW-1", step_time=2.0)))
    assert speed(row()) == 64 * 8192 / 8 / 2
    assert speed(row(id="other")) is None
