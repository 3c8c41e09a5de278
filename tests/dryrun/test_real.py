"""The dry run's memory is that of a real step, to the byte."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from meshfit.workload.counts import training_flops_per_token
from meshfit.workload.families import read_family
from tests.dryrun.layouts import COMPARED, LAST_RANK, NAMES, is_copied_by_gloo, ranks_compared
from tests.ranks import run_module
from tests.run.layouts import CONFIGS, GLOBAL_BATCH_SIZE, NUM_RANKS, SEQUENCE_LENGTH, Case

pytestmark = [pytest.mark.dist, pytest.mark.heavy]

TIMEOUT_S = 300
ALLOCATOR_TOLERANCE = 0.03


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict]:
    """Rank -> case -> what a real run found."""
    folder = tmp_path_factory.mktemp("real")
    run_module("tests.dryrun.real_session", str(folder), ranks=NUM_RANKS, timeout_s=TIMEOUT_S)
    return {r: json.loads((folder / f"{r}.json").read_text()) for r in range(NUM_RANKS)}


@pytest.fixture(scope="module")
def fake() -> dict[int, dict]:
    """Rank -> case -> what a dry run found."""
    ranks = (0, LAST_RANK)
    with ThreadPoolExecutor() as pool:
        sessions = pool.map(_fake_session, ranks)
        return {
            rank: json.loads(done.stdout.splitlines()[-1])
            for rank, done in zip(ranks, sessions, strict=True)
        }


def _fake_session(rank: int) -> subprocess.CompletedProcess[str]:
    return run_module("tests.dryrun.fake_session", str(rank), timeout_s=TIMEOUT_S)


PAIRS = [(case, rank) for case in COMPARED for rank in ranks_compared(case)]


def test_every_compared_layout_is_known() -> None:
    assert {case.name for case in COMPARED} == NAMES
    assert len(COMPARED) >= 20


@pytest.mark.parametrize(("case", "rank"), PAIRS, ids=lambda one: getattr(one, "name", str(one)))
def test_peak_and_where_it_is_are_those_of_a_real_step(
    real: dict[int, dict], fake: dict[int, dict], case: Case, rank: int
) -> None:
    expected, found = real[rank][case.name], fake[rank][case.name]
    for key in ("peak", "operation", "phase"):
        assert found[key] == expected[key], key


@pytest.mark.parametrize(
    ("case", "rank"),
    [(case, rank) for case, rank in PAIRS if not is_copied_by_gloo(case)],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_peak_is_near_that_of_the_cpu_allocator(
    real: dict[int, dict], fake: dict[int, dict], case: Case, rank: int
) -> None:
    found = fake[rank][case.name]
    allocator = found["start"] + real[rank][case.name]["allocator_growth"]
    assert found["peak"]["total"] == pytest.approx(allocator, rel=ALLOCATOR_TOLERANCE)


WHOLE = [
    case
    for case in COMPARED
    if case.layout.pp == 1
    and not CONFIGS[case.model].get("sliding_window")
    and not CONFIGS[case.model].get("kv_lora_rank")
    and case.adapter is None
]
"""Each rank runs all of the model, of which it has a share of the batch or of the matmuls; a window
hides keys that the CPU's kernel computes, values narrower than keys have no kernel there that knows the
causal order, and frozen weights have no gradients."""


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_flops_of_all_ranks_are_those_of_the_formula(fake: dict[int, dict], case: Case) -> None:
    model = read_family(case.model, CONFIGS[case.model])
    formula = training_flops_per_token(model, SEQUENCE_LENGTH) * GLOBAL_BATCH_SIZE * SEQUENCE_LENGTH
    assert fake[0][case.name]["flops"] * NUM_RANKS == formula
