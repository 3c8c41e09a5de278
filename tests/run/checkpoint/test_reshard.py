"""A run saved under one layout goes on under another as if nothing had happened (cases e01, e03, e05)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.checkpoint.reshards import SAVED, STEPS_BEFORE, Saved
from tests.run.layouts import Case

pytestmark = pytest.mark.dist

TOLERANCE = 5e-6
LOADS = [(saved, case) for saved in SAVED for cases in saved.loads.values() for case in cases]


def run_session(folder: Path, action: str, ranks: int) -> None:
    session = ["-m", "tests.run.checkpoint.reshard_session", str(folder), action]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [sys.executable, *(torchrun if ranks > 1 else []), *session],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all checkpoints and of what every layout found after its own."""
    folder = tmp_path_factory.mktemp("reshard")
    run_session(folder, "save", 4)
    for ranks in (4, 2, 1):
        run_session(folder, "load", ranks)
    return folder


def found(session: Path, saved: Saved, case: Case | None = None) -> dict:
    name = saved.folder if case is None else f"{saved.folder} loaded on {case.name}"
    return json.loads((session / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("saved", "case"),
    LOADS,
    ids=[f"{saved.case.name} -> {case.layout.label}" for saved, case in LOADS],
)
class TestResume:
    def test_losses_and_norms_are_those_of_the_run_that_was_not_interrupted(
        self, session: Path, saved: Saved, case: Case
    ) -> None:
        ours, theirs = found(session, saved, case), found(session, saved)
        assert ours["losses"] == pytest.approx(theirs["losses"], rel=TOLERANCE)
        assert ours["gradient_norms"] == pytest.approx(theirs["gradient_norms"], rel=TOLERANCE)

    def test_moments_come_back_whole(self, session: Path, saved: Saved, case: Case) -> None:
        ours, theirs = found(session, saved, case), found(session, saved)
        assert theirs["moments"]["exp_avg_sq"] > 0
        assert ours["moments"] == pytest.approx(theirs["moments"], rel=1e-9)

    def test_no_sample_is_repeated_or_left_out(
        self, session: Path, saved: Saved, case: Case
    ) -> None:
        ours = found(session, saved, case)
        assert ours["step"] == STEPS_BEFORE
        assert ours["samples"] == found(session, saved)["samples"]


def test_the_moments_matter(session: Path) -> None:
    """The losses after a checkpoint differ from those before: agreeing with them says something."""
    (loss, next_loss) = found(session, SAVED[0])["losses"]
    assert abs(loss - next_loss) > 100 * TOLERANCE * loss


def test_no_rank_gathers_the_whole_state(session: Path) -> None:
    """Case e07: a save that gathers on one rank outlasts the collectives' watchdog."""
    folder = session / SAVED[0].folder / f"step-{STEPS_BEFORE}"
    sizes = [path.stat().st_size for path in folder.glob("*.distcp")]
    assert len(sizes) == 4
    assert max(sizes) < 0.5 * sum(sizes)
