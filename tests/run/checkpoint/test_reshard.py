"""A run saved under one layout goes on under another as if nothing had happened (cases e01, e03, e05).

One of each kind; all of docs/checkpoints.md in ``test_every_reshard``.
"""

from pathlib import Path

import pytest

from tests.run.checkpoint.reshards import EVERYDAY, STEPS_BEFORE, Saved, loads_of
from tests.run.checkpoint.resumes import (
    TOLERANCE,
    assert_goes_on_as_if_nothing_had_happened,
    assert_moments_come_back_whole,
    assert_no_sample_is_repeated_or_left_out,
    found,
    run_sessions,
)
from tests.run.layouts import Case

pytestmark = pytest.mark.dist

LOADS = loads_of(EVERYDAY)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all checkpoints and of what every layout found after its own."""
    return run_sessions(tmp_path_factory.mktemp("reshard"), "everyday")


@pytest.mark.parametrize(
    ("saved", "case"),
    LOADS,
    ids=[f"{saved.case.name} -> {case.layout.label}" for saved, case in LOADS],
)
class TestResume:
    def test_losses_and_norms_are_those_of_the_run_that_was_not_interrupted(
        self, session: Path, saved: Saved, case: Case
    ) -> None:
        assert_goes_on_as_if_nothing_had_happened(session, saved, case)

    def test_moments_come_back_whole(self, session: Path, saved: Saved, case: Case) -> None:
        assert_moments_come_back_whole(session, saved, case)

    def test_no_sample_is_repeated_or_left_out(
        self, session: Path, saved: Saved, case: Case
    ) -> None:
        assert_no_sample_is_repeated_or_left_out(session, saved, case)


def test_the_moments_matter(session: Path) -> None:
    """The losses after a checkpoint differ from those before: agreeing with them says something."""
    (loss, next_loss) = found(session, EVERYDAY[0])["losses"]
    assert abs(loss - next_loss) > 100 * TOLERANCE * loss


def test_no_rank_gathers_the_whole_state(session: Path) -> None:
    """Case e07: a save that gathers on one rank outlasts the collectives' watchdog."""
    folder = session / EVERYDAY[0].folder / f"step-{STEPS_BEFORE}"
    sizes = [path.stat().st_size for path in folder.glob("*.distcp")]
    assert len(sizes) == 4
    assert max(sizes) < 0.5 * sum(sizes)
