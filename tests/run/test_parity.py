"""Every strategy and its combinations compute what one process computes."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshfit.mesh.spec import AXES
from tests.run.layouts import CASES, JUDGED_STEPS, NUM_RANKS, Case

pytestmark = pytest.mark.dist

SESSION_TIMEOUT_S = 400
TOLERANCE = {"fp32": (5e-6, 5e-6), "bf16_mixed": (3e-3, 3e-2)}
"""Precision -> largest relative error of a loss; of a gradient norm and a parameter's gradient."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one session of all cases."""
    folder = tmp_path_factory.mktemp("parity")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    session = ["-m", "tests.run.parity_session", str(folder)]
    done = subprocess.run(
        [*torchrun, f"--nproc-per-node={NUM_RANKS}", *session],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SESSION_TIMEOUT_S,
        check=False,
    )
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    return folder


def ranks_of(session: Path, case: Case) -> list[dict]:
    path = session / f"{case.name}.json"
    assert path.exists(), (session / "output.txt").read_text()[-4000:]
    return json.loads(path.read_text())


def find(model: str, layout: str, precision: str = "fp32") -> Case:
    """The case with this layout label."""
    (case,) = [
        case
        for case in CASES
        if (case.model, case.layout.label, case.precision, case.masked, case.optimizer)
        == (model, layout, precision, False, "adamw")
        and case.rank_order == AXES
    ]
    return case


def relative_error(values: list[float], expected: list[float]) -> float:
    assert len(values) == len(expected) == JUDGED_STEPS
    return max(abs(a - b) / abs(b) for a, b in zip(values, expected, strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_layout_computes_what_one_process_computes(session: Path, case: Case) -> None:
    found = ranks_of(session, case)[0]
    expected = json.loads((session / case.reference.name / "result.json").read_text())
    tolerance, gradient_tolerance = TOLERANCE[case.precision]
    assert relative_error(found["losses"], expected["losses"]) <= tolerance
    assert relative_error(found["gradient_norms"], expected["gradient_norms"]) <= (
        gradient_tolerance
    )
    worst = max(found["errors"], key=found["errors"].__getitem__)
    assert found["errors"][worst] <= gradient_tolerance, worst
    assert all(abs(ratio - 1) <= gradient_tolerance for ratio in found["ratios"].values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_rank_reports_the_same_losses_norms_and_gradients(session: Path, case: Case) -> None:
    first, *others = ranks_of(session, case)
    for other in others:
        assert other["losses"] == first["losses"]
        assert other["gradient_norms"] == first["gradient_norms"]
        assert other["errors"] == first["errors"]


def test_norm_is_of_the_whole_model_and_not_of_a_stage(session: Path) -> None:
    ranks = ranks_of(session, find("llama", "pp=4"))
    own = [rank["norm_of_own_stages"] for rank in ranks]
    whole = ranks[0]["gradient_norms"][0]
    assert max(own) < 0.95 * whole
    assert math.isclose(math.hypot(*own), whole, rel_tol=1e-5)


UNITS = 5  # four layers and the root
NORM = 1  # all-reduces of the global gradient norm


def test_hsdp_reduces_over_replicas_once_a_step(session: Path) -> None:
    """Four micro-batches: shards are reduced in each, replicas in the last one only."""
    case = find("llama", "dp_replicate=2,dp_shard=2,zero_stage=3")
    counts = ranks_of(session, case)[0]["collectives"]
    assert counts["allreduce_"] == UNITS + NORM
    assert counts["_reduce_scatter_base_"] == UNITS * 2


def test_replicas_with_tensor_parallelism_reduce_once_a_step(session: Path) -> None:
    one = find("llama", "dp_replicate=2,tp=2,micro_batch_size=2")
    assert one.layout.num_micro_batches(8) == 2
    counts = ranks_of(session, one)[0]["collectives"]
    assert counts["allreduce_"] == UNITS + NORM


def test_ddp_reduces_once_a_step(session: Path) -> None:
    two_micro_batches = ranks_of(session, find("llama", "dp_replicate=4"))[0]["collectives"]
    one = ranks_of(session, find("llama", "dp_replicate=4,micro_batch_size=2"))[0]["collectives"]
    assert two_micro_batches == one


def test_kept_parameters_are_gathered_once_a_micro_batch(session: Path) -> None:
    kept = ranks_of(session, find("llama", "dp_shard=4,zero_stage=2"))[0]["collectives"]
    freed = ranks_of(session, find("llama", "dp_shard=4,zero_stage=3"))[0]["collectives"]
    assert kept["_allgather_base_"] == UNITS * 2
    assert freed["_allgather_base_"] > kept["_allgather_base_"]


def test_gloo_never_sees_a_scaled_sum_or_a_coalesced_collective(session: Path) -> None:
    watch = json.loads((session / "watch.json").read_text())
    assert set(watch["reductions"]) <= {"SUM", "AVG"}
    assert watch["reductions"]
    assert watch["coalesced"] == 0


def traps(session: Path) -> dict:
    return json.loads((session / "traps.json").read_text())


def test_gloo_refuses_a_scaled_sum(session: Path) -> None:
    assert "PREMUL_SUM" in traps(session)["premul_sum"]


def test_gloo_refuses_to_coalesce(session: Path) -> None:
    assert "startCoalescing" in traps(session)["coalescing"]


def test_torch_cannot_clip_a_mixture_of_dtensors_and_tensors_but_the_global_norm_can(
    session: Path,
) -> None:
    found = traps(session)
    assert "mixed torch.Tensor and DTensor" in found["clip_mixture"]
    assert math.isclose(found["norm_of_mixture"], math.hypot(4, 4), rel_tol=1e-6)
