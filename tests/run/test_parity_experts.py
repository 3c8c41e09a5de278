"""Mixtures of experts: parity and routing of every combination that everyday tests leave out."""

from pathlib import Path

import pytest

from tests.run.layouts import HEAVY_CASES, Case
from tests.run.parity import (
    assert_all_ranks_report_the_same,
    assert_computes_what_one_process_computes,
    assert_routes_as_one_process_does,
    run_session,
)

pytestmark = [pytest.mark.dist, pytest.mark.heavy]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one session of all heavy cases."""
    return run_session(tmp_path_factory.mktemp("parity"), "heavy")


@pytest.mark.parametrize("case", HEAVY_CASES, ids=lambda case: case.name)
def test_layout_of_experts_computes_what_one_process_computes(session: Path, case: Case) -> None:
    assert_computes_what_one_process_computes(session, case)


@pytest.mark.parametrize("case", HEAVY_CASES, ids=lambda case: case.name)
def test_every_rank_reports_the_same_routing(session: Path, case: Case) -> None:
    assert_all_ranks_report_the_same(session, case)


@pytest.mark.parametrize("case", HEAVY_CASES, ids=lambda case: case.name)
def test_routing_is_counted_as_one_process_counts_it(session: Path, case: Case) -> None:
    assert_routes_as_one_process_does(session, case)
