from functools import cache
from pathlib import Path

import pytest

from meshfit.funnel.space.planning import make_plan
from meshfit.funnel.sweep.shortlist import STRATEGIES, shortlist
from meshfit.job.read import read_job

EXAMPLES = Path(__file__).parents[3] / "examples" / "exhaustive"
JOBS = ("small-model", "large-model", "deep-model")


@cache
def plan_of(name):
    return make_plan(read_job(EXAMPLES / f"{name}.yaml"))


def families(plan, chosen):
    return [plan.layout(index).family for index in chosen]


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_the_layout_predicted_best_is_always_run_first(name, length):
    plan = plan_of(name)
    chosen = shortlist(plan, length)
    assert chosen[0] == plan.fitting_order()[0]
    assert len(chosen) == len(set(chosen)) == length


@pytest.mark.parametrize("name", JOBS)
def test_every_strategy_is_run_where_there_is_room(name):
    plan = plan_of(name)
    run = families(plan, shortlist(plan, len(STRATEGIES) + 1))
    for strategy in STRATEGIES:
        assert any(strategy in family.split("+") for family in run), strategy


@pytest.mark.parametrize("name", JOBS)
def test_a_strategy_that_is_part_of_the_best_layout_gives_way_to_the_others(name):
    plan = plan_of(name)
    run = families(plan, shortlist(plan, 4))
    best = run[0].split("+")
    for strategy in STRATEGIES:
        assert strategy in best or any(strategy in family.split("+") for family in run[1:])


@pytest.mark.parametrize("name", JOBS)
def test_a_layout_that_is_run_anyway_takes_no_place(name):
    plan = plan_of(name)
    best = shortlist(plan, 4)[0]
    chosen = shortlist(plan, 4, besides=plan.layout(best))
    assert best not in chosen
    assert len(chosen) == 4
