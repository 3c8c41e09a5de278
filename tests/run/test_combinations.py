"""Every set of mesh axes that goes together on eight ranks (on four, where experts are cut) computes what
one process computes."""

from itertools import combinations
from pathlib import Path

import pytest

from tests.run.combinations import (
    COMBINED_AXES,
    CUTTING_COMBINATIONS,
    DENSE,
    DENSE_COMBINATIONS,
    EXPERT_COMBINATIONS,
    EXPERTS,
    axes_of,
    legal_cases,
    legal_cutting_cases,
)
from tests.run.layouts import Case
from tests.run.parity import (
    assert_all_ranks_report_the_same,
    assert_computes_what_one_process_computes,
    assert_routes_as_one_process_does,
    run_session,
)

PAGE = Path(__file__).parents[2] / "docs" / "combinations.md"


@pytest.mark.parametrize(
    ("cases", "axes"),
    [(DENSE_COMBINATIONS, COMBINED_AXES[:-1]), (EXPERT_COMBINATIONS, COMBINED_AXES)],
)
def test_every_pair_of_axes_is_run(cases: list[Case], axes: tuple[str, ...]) -> None:
    run = [axes_of(case.layout) for case in cases]
    for pair in combinations(axes, 2):
        assert any(set(pair) <= set(one) for one in run), pair


@pytest.mark.parametrize(
    ("cases", "legal"),
    [
        (DENSE_COMBINATIONS, legal_cases(DENSE)),
        (EXPERT_COMBINATIONS, legal_cases(EXPERTS)),
        (CUTTING_COMBINATIONS, legal_cutting_cases(EXPERTS)),
    ],
    ids=["dense", "experts", "cut experts"],
)
def test_every_set_of_axes_that_the_rules_allow_is_run_once(
    cases: list[Case], legal: list[Case]
) -> None:
    run = [axes_of(case.layout) for case in cases]
    assert len(set(run)) == len(run)
    assert set(run) == {axes_of(case.layout) for case in legal}


@pytest.mark.parametrize(
    "case",
    [*DENSE_COMBINATIONS, *EXPERT_COMBINATIONS, *CUTTING_COMBINATIONS],
    ids=lambda case: case.name,
)
def test_what_is_run_is_a_row_of_the_page(case: Case) -> None:
    assert f"| {case.model} | `{case.layout.label}` |" in PAGE.read_text()


@pytest.fixture(scope="module")
def dense_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one session of all combinations of a dense model."""
    return run_session(tmp_path_factory.mktemp("parity"), "combinations")


@pytest.fixture(scope="module")
def expert_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of mixtures of experts."""
    return run_session(tmp_path_factory.mktemp("parity"), "combinations of experts")


@pytest.mark.dist
@pytest.mark.heavy
@pytest.mark.parametrize("case", DENSE_COMBINATIONS, ids=lambda case: case.name)
def test_combination_computes_what_one_process_computes_on_every_rank(
    dense_session: Path, case: Case
) -> None:
    assert_computes_what_one_process_computes(dense_session, case)
    assert_all_ranks_report_the_same(dense_session, case)


@pytest.mark.dist
@pytest.mark.heavy
@pytest.mark.parametrize("case", EXPERT_COMBINATIONS, ids=lambda case: case.name)
def test_combination_of_experts_computes_and_routes_as_one_process_does(
    expert_session: Path, case: Case
) -> None:
    assert_computes_what_one_process_computes(expert_session, case)
    assert_all_ranks_report_the_same(expert_session, case)
    assert_routes_as_one_process_does(expert_session, case)


@pytest.fixture(scope="module")
def cutting_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of experts whose width is cut."""
    return run_session(tmp_path_factory.mktemp("parity"), "combinations of cut experts")


@pytest.mark.dist
@pytest.mark.heavy
@pytest.mark.parametrize("case", CUTTING_COMBINATIONS, ids=lambda case: case.name)
def test_combination_of_cut_experts_computes_and_routes_as_one_process_does(
    cutting_session: Path, case: Case
) -> None:
    assert_computes_what_one_process_computes(cutting_session, case)
    assert_all_ranks_report_the_same(cutting_session, case)
    assert_routes_as_one_process_does(cutting_session, case)
