import numpy as np
import pytest

from meshfit.predict.costs.constants import shipped_constants
from meshfit.predict.costs.fitting import fit_constants, fit_spread_scale

COMPUTE = np.array([1.0, 2.0, 4.0, 1.0, 3.0, 2.0] * 5)
SENT = np.array([1.0, 0.2, 2.0, 3.0, 0.1, 1.5] * 5)
FAMILIES = ["one", "two", "two"] * 10


def predict(constants):
    return COMPUTE / constants["matmul.A100.16bit"] + SENT / constants["network.share"]


def test_constants_that_made_the_measurements_are_found_again():
    truth = shipped_constants().with_values({"matmul.A100.16bit": 0.8, "network.share": 0.6})
    start = shipped_constants()
    fitted = fit_constants(predict, predict(truth), FAMILIES, start=start, rounds=6)
    assert fitted["matmul.A100.16bit"] == pytest.approx(0.8, rel=0.02)
    assert fitted["network.share"] == pytest.approx(0.6, rel=0.03)
    assert fitted["contention"] == pytest.approx(start["contention"])


def test_a_few_rows_that_are_far_off_do_not_move_them():
    truth = shipped_constants().with_values({"matmul.A100.16bit": 0.8, "network.share": 0.6})
    measured = predict(truth)
    measured[:4] *= 3
    fitted = fit_constants(predict, measured, FAMILIES, start=shipped_constants(), rounds=6)
    assert fitted["matmul.A100.16bit"] == pytest.approx(0.8, rel=0.05)


def test_constants_stay_within_their_range():
    measured = predict(shipped_constants()) * 100
    fitted = fit_constants(predict, measured, FAMILIES, start=shipped_constants())
    entry = fitted.entries["matmul.A100.16bit"]
    assert entry.low <= entry.value <= entry.high


def test_four_fifths_of_the_errors_lie_inside_the_scaled_intervals():
    errors = np.linspace(-0.5, 0.5, 101)
    spreads = np.full(101, 0.1)
    scale = fit_spread_scale(errors, spreads)
    assert np.mean(np.abs(errors) <= scale * spreads) == pytest.approx(0.8, abs=0.02)


def test_every_constant_says_what_it_means_and_where_it_comes_from():
    for name, entry in shipped_constants().entries.items():
        assert entry.low <= entry.value <= entry.high, name
        assert entry.meaning, name
        assert entry.source, name
