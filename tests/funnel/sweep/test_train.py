"""What a training run with restarts says of itself. No process is started here."""

from pathlib import Path

import pytest
from rich.console import Console

from meshfit.errors import InputError
from meshfit.funnel.sweep.train import Attempt, TrainOptions, train, train_document
from meshfit.job.read import read_job
from meshfit.launch.supervise import LaunchOutcome
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import CheckpointReport, Failure, RankReport, RunResult
from meshfit.report.measured.training import train_view
from tests.funnel.small_job import write_job

LAYOUT = LayoutSpec(dp_shard=2, zero_stage=3)


def finished(first_step: int, steps: int) -> RunResult:
    ranks = tuple(
        RankReport(
            rank=rank,
            host="host0",
            step_s=(0.5 + 0.5 * rank,) * steps,
            input_wait_s=(0.0,) * steps,
            memory=None,
        )
        for rank in range(2)
    )
    return RunResult(
        losses=(2.0, 1.0),
        gradient_norms=(1.0, 1.0),
        useful_tokens_per_step=64,
        ranks=ranks,
        phases_s={"build": 8.0, "first_step": 9.0},
        first_step=first_step,
        load_s=0.25,
        checkpoints=(CheckpointReport(step=10, blocked_s=0.1, written_s=0.4, size_bytes=2**20),),
    )


@pytest.fixture
def attempts() -> list[Attempt]:
    """A rank killed at step 7, resumed from the checkpoint after 4 steps."""
    killed = Failure(
        message="rank 1 was killed by signal 9 (SIGKILL)", rank=1, phase="train", step=7
    )
    failed = LaunchOutcome(outcome="crash", failure=killed, seconds=20.0)
    good = LaunchOutcome(outcome="ok", failure=None, seconds=15.0, result=finished(4, 6))
    return [
        Attempt(first_step=0, reached_step=7, ended=failed),
        Attempt(first_step=4, reached_step=9, ended=good),
    ]


def test_a_restart_names_the_rank_and_what_was_lost(attempts: list[Attempt]) -> None:
    document = train_document(LAYOUT, attempts)
    assert document["outcome"] == "ok"
    (restart,) = document["restarts"]
    assert (restart["rank"], restart["phase"], restart["at_step"]) == (1, "train", 7)
    assert (restart["resumed_step"], restart["lost_steps"]) == (4, 3)
    assert restart["lost"] == pytest.approx(3 * 1.0), "steps as long as the slowest rank's"
    assert restart["restart"] == 9.0


def test_a_run_without_failures_has_no_restarts(attempts: list[Attempt]) -> None:
    document = train_document(LAYOUT, attempts[1:])
    assert document["restarts"] == []
    assert document["load"] == 0.25
    assert document["checkpoints"] == [
        {"step": 10, "blocked_s": 0.1, "written_s": 0.4, "size_bytes": 2**20}
    ]


def test_a_run_that_never_ended_well_shows_its_last_failure(attempts: list[Attempt]) -> None:
    document = train_document(LAYOUT, attempts[:1])
    assert document["outcome"] == "crash"
    assert document["failure"]["rank"] == 1
    assert document["losses"] == []


def test_what_cannot_be_trained_is_said_before_anything_starts(tmp_path: Path) -> None:
    path = write_job(tmp_path, "layout: {dp_shard: 2}\n")
    path.write_text(path.read_text().replace("${stdlib}/a*.py", "missing/*.txt"))
    out = tmp_path / "out"
    with pytest.raises(InputError, match="names no file"):
        train(read_job(path), TrainOptions(every=1), out=out, console=Console())
    assert not out.exists()


def test_the_view_tells_checkpoints_and_restarts(attempts: list[Attempt]) -> None:
    console = Console(width=200, record=True, file=None)
    with console.capture() as captured:
        console.print(train_view(train_document(LAYOUT, attempts)))
    text = captured.get()
    assert "loss 2.0000 -> 1.0000" in text
    assert "checkpoint after 10 steps" in text
    assert "failed at step 7 (rank 1 was killed by signal 9 (SIGKILL))" in text
    assert "3 lost" in text
