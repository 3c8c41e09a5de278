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
    """Where it has a part of none (HSDP), all of them are run after it."""
    plan = plan_of(name)
    (first,) = families(plan, shortlist(plan, 1))
    others = [strategy for strategy in STRATEGIES if strategy not in first.split("+")]
    run = families(plan, shortlist(plan, 1 + len(others)))
    for strategy in others:
        assert any(strategy in family.split("+") for family in run[1:]), strategy


@pytest.mark.parametrize("name", JOBS)
def test_a_layout_that_is_run_anyway_takes_no_place(name):
    plan = plan_of(name)
    best = shortlist(plan, 4)[0]
    chosen = shortlist(plan, 4, besides=plan.layout(best))
    assert best not in chosen
    assert len(chosen) == 4


def shortlist_and_contenders(plan, length):
    """A shortlist, and those of its last places that no strategy can claim."""
    chosen = shortlist(plan, length)
    return chosen, chosen[len(STRATEGIES) + 1 :]


@pytest.mark.parametrize("name", JOBS)
def test_places_after_the_strategies_go_to_layouts_that_may_win(name):
    plan = plan_of(name)
    fastest_high_s = plan.estimates.step_high_s[plan.fitting_order()[0]]
    _, contenders = shortlist_and_contenders(plan, 8)
    assert len(contenders) >= 3
    assert all(plan.estimates.step_low_s[index] <= fastest_high_s for index in contenders)


@pytest.mark.parametrize("name", JOBS)
def test_each_contender_takes_most_from_the_regret_that_is_to_be_expected(name):
    """Against every other choice for its place."""
    plan = plan_of(name)
    ordered = plan.fitting_order()
    steps = plan.estimates.drawn_steps(ordered, 400)
    steps = steps / steps.min(axis=0)
    row = {int(index): place for place, index in enumerate(ordered)}

    def regret(chosen):
        return steps[[row[index] for index in chosen]].min(axis=0).mean()

    chosen, contenders = shortlist_and_contenders(plan, 8)
    for contender in contenders:
        before = chosen[: chosen.index(contender)]
        assert regret([*before, contender]) < regret(before)
        others = [int(index) for index in ordered if index not in before]
        assert regret([*before, contender]) == min(regret([*before, one]) for one in others)


def test_a_longer_shortlist_only_adds():
    plan = plan_of("small-model")
    assert shortlist(plan, 8)[:6] == shortlist(plan, 6) == shortlist(plan, 6)


@pytest.mark.parametrize("name", JOBS)
def test_what_is_run_anyway_leaves_its_strategys_place_to_the_other_strategies(name):
    plan = plan_of(name)
    best = plan.layout(shortlist(plan, 1)[0])
    run = [best.family, *families(plan, shortlist(plan, len(STRATEGIES), besides=best))]
    for strategy in STRATEGIES:
        assert any(strategy in family.split("+") for family in run), strategy
