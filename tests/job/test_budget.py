import pytest

from meshfit.errors import InputError
from meshfit.job.budget import read_budget
from meshfit.job.schema import BudgetFile


def test_a_budget_as_the_design_writes_it():
    budget = read_budget(BudgetFile(tokens="15T", price="2.5 USD/GPU-h", mtbf="50000 GPU-h"))
    assert budget.tokens == 15 * 10**12
    assert (budget.price_per_device_h, budget.currency) == (2.5, "USD")
    assert budget.mtbf_device_s == 50_000 * 3600
    assert budget.restart_s == 600


def test_no_budget_is_none():
    assert read_budget(None) is None


@pytest.mark.parametrize(
    ("price", "expected"), [("3 eur/gpu-h", (3.0, "EUR")), ("2.1 $/GPU-h", (2.1, "USD"))]
)
def test_prices_as_people_write_them(price, expected):
    budget = read_budget(BudgetFile(tokens="1B tokens", price=price))
    assert (budget.price_per_device_h, budget.currency) == expected


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tokens": "0"}, "greater than 0"),
        ({"tokens": "lots"}, "budget.tokens"),
        ({"tokens": "1T", "price": "cheap"}, "budget.price"),
        ({"tokens": "1T", "price": 2.5}, "write it like '2.5 USD/GPU-h'"),
        ({"tokens": "1T", "mtbf": "5 years"}, "budget.mtbf"),
        ({"tokens": "1T", "mtbf": "0 GPU-h"}, "budget.mtbf"),
        ({"tokens": "1T", "restart": "-1"}, "not a duration"),
        ({"tokens": "1T", "restart": -1}, "at least 0"),
        ({"tokens": "1T", "checkpoint_every": 0}, "greater than 0"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_key(keys, message):
    with pytest.raises(InputError, match=message):
        read_budget(BudgetFile(**keys))
