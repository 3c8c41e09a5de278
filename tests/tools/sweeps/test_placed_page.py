from tools.sweeps.placed_page import placed_markdown
from tools.sweeps.predicted import PredictedStep


def step(order, predicted_s, measured_s, exposed_s=1.0):
    return PredictedStep(
        label="tp=2,dp_replicate=2", rank_order=order, levels={"tp": "host"},
        predicted_s=predicted_s, exposed_s=exposed_s, measured_s=measured_s,
    )  # fmt: skip


def test_the_page_says_how_near_and_in_which_order_predictions_are():
    text = placed_markdown(
        [step(("tp", "dp_replicate"), 2.0, 2.2), step(("dp_replicate", "tp"), 1.0, 1.6)]
    )
    rows = text.splitlines()
    assert rows[2].startswith("| `tp=2,dp_replicate=2` | dp_replicate > tp | tp: host | 1.00 s")
    assert rows[2].endswith("| -38% |")
    assert "1 of 2 network-bound layouts" in text
    assert "Of 1 pairs of them that differ by more than 15.0%, 0 are predicted in the wrong" in text
    assert "is predicted 2.00 times as slow as dp_replicate > tp, and measured 1.38 times" in text


def test_a_pair_in_the_wrong_order_is_named_and_what_is_not_bound_does_not_count():
    slow_first = step(("tp", "dp_replicate"), 1.0, 2.0)
    fast_second = step(("dp_replicate", "tp"), 2.0, 1.0)
    text = placed_markdown([slow_first, fast_second])
    assert "`tp=2,dp_replicate=2` (dp_replicate > tp) is faster than" in text
    bound_by_compute = step(("tp", "dp_replicate"), 1.0, 2.0, exposed_s=0.1)
    assert "0 of 1 network-bound" in placed_markdown([bound_by_compute, fast_second])
