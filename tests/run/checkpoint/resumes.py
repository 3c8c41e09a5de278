"""Sessions that save checkpoints under some layouts and resume under others, and what must hold of them."""

import json
from pathlib import Path

import pytest

from tests.ranks import run_module
from tests.run.checkpoint.reshards import SETS, STEPS_BEFORE, Saved
from tests.run.layouts import Case

TOLERANCE = 5e-6
SESSION_TIMEOUT_S = 600


def run_sessions(folder: Path, which: str) -> Path:
    """Saves and loads all of a set; ``folder``, where every layout leaves what it found."""
    _run(folder, which, 4, "save", "load")
    for ranks in sorted({n for saved in SETS[which] for n in saved.loads} - {4}):
        _run(folder, which, ranks, "load")
    return folder


def _run(folder: Path, which: str, ranks: int, *actions: str) -> None:
    session = "tests.run.checkpoint.reshard_session"
    run_module(session, str(folder), which, *actions, ranks=ranks, timeout_s=SESSION_TIMEOUT_S)


def found(session: Path, saved: Saved, case: Case | None = None) -> dict:
    """What a loading layout found; without one, the run that was not interrupted."""
    name = saved.folder if case is None else f"{saved.folder} loaded on {case.name}"
    return json.loads((session / f"{name}.json").read_text())


def assert_goes_on_as_if_nothing_had_happened(session: Path, saved: Saved, case: Case) -> None:
    ours, theirs = found(session, saved, case), found(session, saved)
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=TOLERANCE)
    assert ours["gradient_norms"] == pytest.approx(theirs["gradient_norms"], rel=TOLERANCE)


def assert_moments_come_back_whole(session: Path, saved: Saved, case: Case) -> None:
    ours, theirs = found(session, saved, case), found(session, saved)
    assert theirs["moments"]["exp_avg_sq"] > 0
    assert ours["moments"] == pytest.approx(theirs["moments"], rel=1e-9)


def assert_no_sample_is_repeated_or_left_out(session: Path, saved: Saved, case: Case) -> None:
    ours = found(session, saved, case)
    assert ours["step"] == STEPS_BEFORE
    assert ours["samples"] == found(session, saved)["samples"]
