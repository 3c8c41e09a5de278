import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.compare.residuals import StepResidual, calibrated, half_width, time_factors
from meshfit.predict.calibration import formula_only
from tests.predict.builders import cluster

PLAIN = formula_only(cluster(), "native")
SHARES = (0.02, 0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9)


def layouts(compute, collectives, shares=SHARES, noise=()):
    """Layouts whose step is exactly what the factors say, times ``noise`` where it is given."""
    noise = list(noise) + [1.0] * (len(shares) - len(noise))
    return [
        StepResidual(
            computed_s=1 - share,
            exposed_s=share,
            measured_s=(compute * (1 - share) + collectives * share) * factor,
        )
        for share, factor in zip(shares, noise, strict=True)
    ]


def test_many_layouts_with_different_shares_tell_both_factors():
    found = time_factors(layouts(1.3, 4.0, shares=SHARES * 20))
    assert found.compute * found.step == pytest.approx(1.3, rel=0.05)
    assert found.collectives * found.step == pytest.approx(4.0, rel=0.05)


def test_a_few_layouts_move_factors_part_of_the_way():
    one, four = (time_factors(layouts(2.0, 2.0, shares=SHARES[:n])) for n in (1, 4))
    assert one.compute == pytest.approx(math.sqrt(2.0))
    assert four.compute == pytest.approx(2.0**0.8)
    assert (one.step, four.step) == pytest.approx((1.0, 1.0))


def test_layouts_that_expose_alike_say_nothing_of_collectives_alone():
    found = time_factors(layouts(1.5, 6.0, shares=(0.1, 0.1001, 0.1002, 0.1003)))
    assert found.collectives == pytest.approx(found.compute, rel=1e-3)


def test_one_odd_run_does_not_decide():
    steady = time_factors(layouts(1.3, 1.3))
    odd = time_factors(layouts(1.3, 1.3, noise=[40.0]))
    assert odd.compute == pytest.approx(steady.compute, rel=0.1)
    assert odd.collectives == pytest.approx(steady.collectives, rel=0.1)


@given(
    st.floats(0.2, 5), st.floats(0.2, 5), st.lists(st.sampled_from(SHARES), min_size=1, max_size=9)
)
def test_corrections_never_point_away_from_what_was_measured(compute, collectives, shares):
    steps = layouts(compute, collectives, shares=shares)
    found = time_factors(steps)
    errors = sorted(abs(math.log(one.measured_s / found.corrected_s(one))) for one in steps)
    before = sorted(abs(math.log(one.measured_s / one.predicted_s)) for one in steps)
    assert errors[len(errors) // 2] <= before[len(before) // 2] + 0.05


def test_no_layout_leaves_the_calibration_as_it_is():
    assert calibrated(PLAIN, [], []) == PLAIN


def test_what_is_learned_says_how_many_layouts_it_rests_on():
    found = calibrated(PLAIN, layouts(1.3, 1.3), [1.05] * 5)
    assert (found.step_time.basis, found.step_time.samples) == ("measured_here", len(SHARES))
    assert (found.memory.basis, found.memory.samples) == ("measured_here", 5)
    assert found.memory.factor == pytest.approx(1.05 ** (5 / 6))


def test_time_alone_leaves_memory_as_it_is():
    assert calibrated(PLAIN, layouts(1.3, 1.3), []).memory == PLAIN.memory


def test_fewer_than_four_layouts_do_not_narrow_an_interval():
    for count in range(1, 4):
        found = calibrated(PLAIN, layouts(1.3, 1.3, shares=SHARES[:count]), [1.0] * count)
        assert found.step_time.spread >= PLAIN.step_time.spread
        assert found.memory.spread >= PLAIN.memory.spread
    found = calibrated(PLAIN, layouts(1.05, 1.05), [1.0] * 4)
    assert found.step_time.spread < 1.1
    assert found.memory.spread == pytest.approx(1.01)


def test_an_interval_is_as_wide_as_what_layouts_err_by_when_left_out():
    noise = [1.3 ** (n / 20) for n in range(-20, 21)]
    found = calibrated(PLAIN, layouts(1.0, 1.0, shares=(0.3,) * 41, noise=noise), [])
    assert found.step_time.spread == pytest.approx(1.3**0.85, rel=0.03)


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=60))
def test_four_fifths_of_what_was_seen_lies_inside(residuals):
    half = half_width(residuals, 0.7, 0.03)
    assert sum(abs(one) <= half for one in residuals) >= 0.8 * len(residuals)


def test_the_interval_of_a_wrong_formula_may_grow():
    wild = [replace(one, measured_s=one.measured_s * 9.0**n) for n, one in enumerate(layouts(1, 1))]
    assert calibrated(PLAIN, wild, []).step_time.spread > PLAIN.step_time.spread
