"""Every strategy and its combinations compute what one process computes."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest

from tests.run.layouts import CASES, Case, has_experts
from tests.run.parity import (
    assert_all_ranks_report_the_same,
    assert_computes_what_one_process_computes,
    assert_routes_as_one_process_does,
    ranks_of,
    run_session,
)

pytestmark = pytest.mark.dist


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one session of all everyday cases."""
    return run_session(tmp_path_factory.mktemp("parity"), "everyday")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_layout_computes_what_one_process_computes(session: Path, case: Case) -> None:
    assert_computes_what_one_process_computes(session, case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_rank_reports_the_same_losses_norms_and_gradients(session: Path, case: Case) -> None:
    assert_all_ranks_report_the_same(session, case)


@pytest.mark.parametrize(
    "case", [case for case in CASES if has_experts(case)], ids=lambda case: case.name
)
def test_routing_is_counted_as_one_process_counts_it(session: Path, case: Case) -> None:
    assert_routes_as_one_process_does(session, case)


def find(model: str, layout: str) -> Case:
    """The case with this layout label, in fp32 with AdamW."""
    (case,) = [case for case in CASES if case.name == f"{model} {layout}"]
    return case


def test_norm_is_of_the_whole_model_and_not_of_a_stage(session: Path) -> None:
    ranks = ranks_of(session, find("llama", "pp=4"))
    own = [rank["norm_of_own_stages"] for rank in ranks]
    whole = ranks[0]["gradient_norms"][0]
    assert max(own) < 0.95 * whole
    assert math.isclose(math.hypot(*own), whole, rel_tol=1e-5)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.model == "llama_tied" and case.layout.pp > 1],
    ids=lambda case: case.name,
)
def test_d14_both_copies_of_a_tied_embedding_stay_equal_bit_for_bit(
    session: Path, case: Case
) -> None:
    copies = defaultdict(list)
    for rank in ranks_of(session, case):
        copies[tuple(rank["place"])] += rank["tied_copies"]
    for first, last in copies.values():
        assert first == last


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
    assert freed["_allgather_base_"] == (2 * UNITS - 1) * 2  # the root's are not freed either


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
