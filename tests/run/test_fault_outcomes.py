"""Every fault of ``tools/faults.py`` on the real worker: its outcome, and rank 1 is named."""

from pathlib import Path

import pytest

from meshfit.breakdown import TimeBreakdown
from meshfit.launch.supervise import LaunchOutcome
from meshfit.record.schema import Failure, RankReport, RunResult, StepProfile
from meshfit.run.faults import parse_faults
from tools.faults import CASES, CONFIG, HANG_S, FaultCase, named, run_case, table


def test_every_fault_that_can_be_injected_strikes_rank_1() -> None:
    (first, *_), *others = (parse_faults(case.fault) for case in CASES)
    faults = [first, *(fault for (fault,) in others)]
    assert {fault.rank for fault in faults} == {1}
    assert {fault.kind for fault in faults} == {
        "raise", "exit", "kill", "hang", "stall", "oom", "nan", "slow"
    }  # fmt: skip


def test_the_table_names_whom_the_launch_blames() -> None:
    failure = Failure(message="rank 1 was killed | by\n signal 9", rank=1, phase="train", step=2)
    ended = LaunchOutcome(outcome="crash", failure=failure, seconds=12.3)
    *_, row = table([(CASES[2], ended)]).splitlines()
    assert row.startswith("| is killed | crash | rank 1, train, step 2 |")
    assert row.endswith("| 12 s | rank 1 was killed / by signal 9 |")


def test_a_launch_that_ended_well_names_its_straggler() -> None:
    ranks = tuple(
        RankReport(
            rank=rank,
            host="",
            step_s=(1.0,) * 3,
            input_wait_s=(0.0,) * 3,
            memory=None,
            profile=StepProfile(
                time=TimeBreakdown(compute=1.0), waiting_s=0.8 - 0.8 * rank, communication_s=0.8
            ),
        )
        for rank in range(2)
    )
    result = RunResult(losses=(1.0,), gradient_norms=(), useful_tokens_per_step=1, ranks=ranks)
    ended = LaunchOutcome(outcome="ok", failure=None, seconds=1.0, result=result)
    assert named(ended) == ("rank 1", "0.20 of the fastest rank's speed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from meshfit.run.model.weights import write_initial_weights

    folder = tmp_path_factory.mktemp("faults")
    write_initial_weights(CONFIG, folder / "weights", 0)
    return folder


@pytest.mark.dist
@pytest.mark.heavy
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_broken_rank_is_named_in_time(folder: Path, case: FaultCase) -> None:
    ended = run_case(case, folder)
    assert ended.outcome == case.outcome
    who, message = named(ended)
    assert who.startswith("rank 1"), message
    if case.outcome == "hang":
        assert f"no rank moved for {HANG_S:.0f}" in message
