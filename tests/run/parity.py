"""One torchrun session of many layouts, and what must hold of each of them."""

import json
from pathlib import Path

import pytest

from tests.ranks import run_module
from tests.run.layouts import JUDGED_STEPS, Case
from tests.run.sessions import SESSIONS

SESSION_TIMEOUT_S = 900
TOLERANCE = {"fp32": (5e-6, 5e-6), "bf16_mixed": (3e-3, 3e-2)}
"""Precision -> largest relative error of a loss; of a gradient norm and a parameter's gradient."""

LATER_NORMS = {"muon": 3e-3}
"""The same of norms after the first update, where an optimizer computes it in bfloat16: a bit of fp32
that differs can round the other way there."""


def run_session(folder: Path, which: str) -> Path:
    """Runs all cases of that kind; ``folder``, where they leave what they found."""
    done = run_module(
        "tests.run.parity_session",
        str(folder),
        which,
        ranks=SESSIONS[which].num_ranks,
        timeout_s=SESSION_TIMEOUT_S,
        check=False,  # what each case found says more
    )
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    return folder


def ranks_of(session: Path, case: Case) -> list[dict]:
    """What every rank of a case found."""
    path = session / f"{case.name}.json"
    assert path.exists(), (session / "output.txt").read_text()[-4000:]
    return json.loads(path.read_text())


def reference_of(session: Path, case: Case) -> dict:
    """What one process found of the same work."""
    return json.loads((session / case.reference.name / "result.json").read_text())


def relative_error(values: list[float], expected: list[float]) -> float:
    assert len(values) == len(expected) == JUDGED_STEPS
    return max(abs(a - b) / abs(b) for a, b in zip(values, expected, strict=True))


def auxiliary_error(found: dict, expected: dict) -> float | None:
    """Of what routers add to the loss; None where they add nothing."""
    ours, theirs = (one.get("routing", {}).get("auxiliary_loss") for one in (found, expected))
    return relative_error(ours, theirs) if theirs else None


def assert_computes_what_one_process_computes(session: Path, case: Case) -> None:
    found, expected = ranks_of(session, case)[0], reference_of(session, case)
    tolerance, gradient_tolerance = TOLERANCE[case.precision]
    assert relative_error(found["losses"], expected["losses"]) <= tolerance
    assert (auxiliary_error(found, expected) or 0.0) <= tolerance
    norms, norms_expected = found["gradient_norms"], expected["gradient_norms"]
    assert abs(norms[0] - norms_expected[0]) / norms_expected[0] <= gradient_tolerance
    assert relative_error(norms, norms_expected) <= LATER_NORMS.get(
        case.optimizer, gradient_tolerance
    )
    worst = max(found["errors"], key=found["errors"].__getitem__)
    assert found["errors"][worst] <= gradient_tolerance, worst
    assert all(abs(ratio - 1) <= gradient_tolerance for ratio in found["ratios"].values())


def assert_all_ranks_report_the_same(session: Path, case: Case) -> None:
    first, *others = ranks_of(session, case)
    for other in others:
        for name in ("losses", "gradient_norms", "errors", "routing"):
            assert other.get(name) == first.get(name), name


def assert_routes_as_one_process_does(session: Path, case: Case) -> None:
    """Every count of the routing report is that of one process, which sees all tokens."""
    found, expected = ranks_of(session, case)[0]["routing"], reference_of(session, case)["routing"]
    for name in ("layers", "tokens_per_expert", "tokens_per_layer", "dropped"):
        assert found[name] == expected[name], name
    tolerance = 20 * TOLERANCE[case.precision][0]  # of a mean over few tokens, not over all
    for name in ("entropy", "imbalance", "auxiliary_loss"):
        assert found[name] == pytest.approx(expected[name], rel=tolerance), name
    for ours, theirs in zip(found["loss_by_route"], expected["loss_by_route"], strict=True):
        for loss, other in zip(ours, theirs, strict=True):  # None where no token took that route
            assert loss == (None if other is None else pytest.approx(other, rel=tolerance))
