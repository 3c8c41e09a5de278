import pytest

from meshfit.validate.error_scores import ErrorScore, Sample, by_shelf
from meshfit.validate.fit_scores import FitScore
from meshfit.validate.order_scores import OrderScore
from meshfit.validate.scores import Scores
from meshfit.validate.targets import Target, targets
from tests.validate.builders import row


def scores(time=(), *, fits=None, order=None):
    samples = [
        Sample(
            row=row(family="internevo", mbs=str(n)),
            measured=1.0,
            predicted=1 + error,
            interval=None,
        )
        for n, error in enumerate(time)
    ]
    none = OrderScore(pairs=0, groups=0)
    return Scores(
        memory_samples=[],
        time_samples=samples,
        memory={},
        time=by_shelf(samples),
        fits=fits or FitScore(),
        order=order or none,
        order_wide=none,
        not_modelled={},
    )


def target(name, *given, **more) -> Target:
    return next(found for found in targets(scores(*given), **more) if found.name == name)


@pytest.mark.parametrize(("error", "reached"), [(0.04, True), (0.06, False)])
def test_a_median_is_held_against_its_bound(error, reached):
    assert target("time, internevo: median", [error]).reached is reached


@pytest.mark.parametrize(("error", "reached"), [(0.04, True), (-0.04, True), (-0.06, False)])
def test_a_bias_is_bounded_on_both_sides(error, reached):
    assert target("bias of time, internevo", [error]).reached is reached


def test_nothing_to_judge_is_a_miss():
    found = target("memory, bigscience_v100: median")
    assert found.reached is None
    assert found.is_missed


def test_left_out_families_are_judged_only_where_they_were_fitted():
    assert not any("left out" in found.name for found in targets(scores()))
    found = target(
        "time, nvidia_dgxc left out: median",
        left_out={"nvidia_dgxc": ErrorScore(rows=1, configurations=1, modelled=1, median=0.11)},
    )
    assert found.reached is False


def test_one_layout_out_of_memory_called_fits_is_a_miss():
    fits = FitScore(oom_rows=8, oom_caught=7, oom_called_comfortable=1, ok_rows=1, ok_kept=1)
    found = {one.name: one.reached for one in targets(scores(fits=fits))}
    assert found["fits: OOM rows caught"] is True
    assert found["fits: OOM rows called fits"] is False


def test_shares_of_pairs_have_a_lower_bound():
    order = OrderScore(pairs=10, groups=2, pairs_right=0.93, groups_right=0.5, mean_regret=0.01)
    found = {one.name: one.reached for one in targets(scores(order=order))}
    assert found["order, narrow: pairs"] is True
    assert found["order, narrow: over groups"] is False
    assert found["order, narrow: mean regret"] is True
    assert found["order, wide: pairs"] is None
