"""Further combinations of strategies compute what one process computes."""

from pathlib import Path

import pytest

from tests.run.layouts import STRATEGY_CASES, Case
from tests.run.parity import (
    assert_all_ranks_report_the_same,
    assert_computes_what_one_process_computes,
    run_session,
)

pytestmark = [pytest.mark.dist, pytest.mark.heavy]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one session of all cases."""
    return run_session(tmp_path_factory.mktemp("parity"), "strategies")


@pytest.mark.parametrize("case", STRATEGY_CASES, ids=lambda case: case.name)
def test_layout_computes_what_one_process_computes_on_every_rank(session: Path, case: Case) -> None:
    assert_computes_what_one_process_computes(session, case)
    assert_all_ranks_report_the_same(session, case)
