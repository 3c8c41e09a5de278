"""Every row of docs/checkpoints.md: further pairs of layouts than the everyday ones of ``test_reshard``."""

from pathlib import Path

import pytest

from tests.run.checkpoint.reshards import ALL, Saved, loads_of
from tests.run.checkpoint.resumes import (
    assert_goes_on_as_if_nothing_had_happened,
    assert_moments_come_back_whole,
    assert_no_sample_is_repeated_or_left_out,
    run_sessions,
)
from tests.run.layouts import Case

pytestmark = [pytest.mark.dist, pytest.mark.heavy]

LOADS = loads_of(ALL)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all checkpoints and of what every layout found after its own."""
    return run_sessions(tmp_path_factory.mktemp("reshard"), "all")


@pytest.mark.parametrize(
    ("saved", "case"),
    LOADS,
    ids=[f"{saved.case.name} -> {case.layout.label}" for saved, case in LOADS],
)
def test_training_goes_on_as_if_nothing_had_happened(
    session: Path, saved: Saved, case: Case
) -> None:
    assert_goes_on_as_if_nothing_had_happened(session, saved, case)
    assert_moments_come_back_whole(session, saved, case)
    assert_no_sample_is_repeated_or_left_out(session, saved, case)
