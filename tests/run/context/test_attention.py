"""Every exchange gives each rank its part of what attention over the whole sequence gives."""

import json

import pytest

from tests.ranks import run_module
from tests.run.context.attention_cases import CASES, NUM_RANKS, Case

pytestmark = pytest.mark.dist

TOLERANCE = {"float64": 1e-13, "bfloat16": 1e-2}
"""Largest relative error; one rounding to bf16 is 2^-8."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """Case -> largest relative error of any rank in the output and the three gradients."""
    folder = tmp_path_factory.mktemp("attention")
    run_module("tests.run.context.attention_session", str(folder), ranks=NUM_RANKS, timeout_s=120)
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ranks_together_compute_attention_and_its_gradients(
    found: dict[str, list[float]], case: Case
) -> None:
    assert max(found[case.name]) <= TOLERANCE[case.problem.dtype]


def test_our_ring_agrees_with_the_one_of_pytorch(found: dict[str, list[float]]) -> None:
    assert max(found["torch"]) <= 1e-6
