import numpy as np
import pytest

from meshfit.predict.costs.constants import shipped_constants
from meshfit.validate.predictions import predict_rows
from meshfit.validate.refit import (
    fitted_to,
    from_the_middle,
    leave_one_out,
    linear_steps,
    measured_steps,
)
from tests.validate.builders import row

LAYOUTS = (
    {"tp": "1", "dp": "16"},
    {"tp": "2", "dp": "8"},
    {"tp": "4", "dp": "4", "mbs": "2"},
    {"tp": "8", "dp": "2", "pp": "1"},
)


@pytest.fixture(scope="module")
def predictions():
    rows = [
        row(id=f"{family}-{n}", family=family, n_gpus="16", time_s="5.0", **layout)
        for family in ("here", "there")
        for n, layout in enumerate(LAYOUTS)
    ]
    return predict_rows(rows)


@pytest.fixture(scope="module")
def linear(predictions):
    return linear_steps(measured_steps(predictions), shipped_constants())


def test_equal_jobs_of_a_family_are_one_at_their_median(predictions):
    again = predict_rows([row(id="a", time_s="4.0"), row(id="b", time_s="8.0")])
    assert measured_steps(again).seconds.tolist() == [6.0]
    assert len(measured_steps(predictions).jobs) == 2 * len(LAYOUTS)


def test_a_linear_step_is_exact_where_it_was_taken(linear):
    exact = linear.steps.predicted(linear.constants)
    assert linear.predicted(linear.constants) == pytest.approx(exact)


def test_a_linear_step_follows_a_small_change(linear):
    name = "matmul.H100.16bit"
    moved = linear.constants.with_values({name: linear.constants[name] * 1.05})
    assert linear.predicted(moved) == pytest.approx(linear.steps.predicted(moved), rel=2e-3)


def test_a_fit_finds_the_constants_that_made_the_times(linear):
    name = "matmul.H100.16bit"
    true = linear.constants.with_values({name: 0.7})
    made = linear_steps(
        type(linear.steps)(
            jobs=linear.steps.jobs, rows=linear.steps.rows, seconds=linear.steps.predicted(true)
        ),
        shipped_constants(),
    )
    found = made.predicted(fitted_to(made))
    assert np.median(np.abs(found / made.steps.seconds - 1)) < 0.02


def test_a_fit_starts_without_the_shipped_values():
    shipped = shipped_constants()
    middle = from_the_middle(shipped)
    fitted = [name for name, entry in shipped.entries.items() if entry.is_fitted]
    assert fitted
    for name in fitted:
        assert shipped.entries[name].low <= middle[name] <= shipped.entries[name].high
    changed = shipped.with_values({name: shipped.entries[name].high for name in fitted})
    assert all(from_the_middle(changed)[name] == middle[name] for name in fitted)


def test_every_family_is_left_out_once(predictions):
    found = dict(leave_one_out(predictions))
    assert list(found) == ["here", "there"]
    assert all(score.configurations == len(LAYOUTS) for score in found.values())
