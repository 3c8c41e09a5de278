"""Every exchange gives each rank its part of what attention over the whole sequence gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.context.attention_cases import CASES, NUM_RANKS, Case

pytestmark = pytest.mark.dist

TOLERANCE = {"float64": 1e-13, "bfloat16": 1e-2}
"""Largest relative error; one rounding to bf16 is 2^-8."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """Case -> largest relative error of any rank in the output and the three gradients."""
    folder = tmp_path_factory.mktemp("attention")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    session = ["-m", "tests.run.context.attention_session", str(folder)]
    done = subprocess.run(
        [*torchrun, f"--nproc-per-node={NUM_RANKS}", *session],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ranks_together_compute_attention_and_its_gradients(
    found: dict[str, list[float]], case: Case
) -> None:
    assert max(found[case.name]) <= TOLERANCE[case.problem.dtype]


def test_our_ring_agrees_with_the_one_of_pytorch(found: dict[str, list[float]]) -> None:
    assert max(found["torch"]) <= 1e-6
