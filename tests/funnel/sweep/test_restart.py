"""A rank that is killed while it trains: the run starts again from its last checkpoint, and says what it lost."""

import io
import os
import signal
import threading
from pathlib import Path

import pytest
from rich.console import Console

from meshfit.funnel.sweep.train import TrainOptions, train
from meshfit.record.heartbeat import read_heartbeats
from tests.funnel.small_job import read_small_job

pytestmark = [pytest.mark.dist, pytest.mark.heavy]

STEPS, CHECKPOINT_EVERY, KILLED_AFTER = 12, 4, 6


class Killer(threading.Thread):
    """Kills rank 1 of the first launch below ``folder`` as soon as it has come as far as that step."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(daemon=True)
        self._folder, self._step = folder, step
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            for launch in self._folder.glob("launches/*"):
                beat = read_heartbeats(launch).get(1)
                if beat is not None and beat.phase == "train" and beat.step >= self._step:
                    os.kill(beat.pid, signal.SIGKILL)
                    return


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, *, restarts: int) -> dict:
    monkeypatch.setenv(
        "MESHFIT_FAULT", "slow:rank=0:seconds=0.3"
    )  # time to strike between two steps
    job = read_small_job(folder, f"layout: {{dp_shard: 2}}\nrun: {{steps: {STEPS}}}\n")
    options = TrainOptions(
        every=CHECKPOINT_EVERY, asynchronous=False, resume=False, restarts=restarts
    )
    return train(job, options, out=folder / "run", console=Console(file=io.StringIO())).document


def test_a_killed_rank_costs_the_steps_since_the_last_checkpoint_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(tmp_path / "whole", monkeypatch, restarts=0)
    killer = Killer(tmp_path / "killed" / "run", KILLED_AFTER)
    killer.start()
    killed = trained(tmp_path / "killed", monkeypatch, restarts=1)
    killer.over.set()
    assert whole["outcome"] == killed["outcome"] == "ok"
    assert whole["restarts"] == []
    (restart,) = killed["restarts"]
    assert restart["rank"] == 1
    assert "SIGKILL" in restart["message"]
    assert restart["resumed_step"] == CHECKPOINT_EVERY
    assert restart["lost_steps"] == restart["at_step"] - CHECKPOINT_EVERY > 0
    assert restart["lost"] > 0
    assert restart["restart"] > 0
    assert killed["first_step"] == CHECKPOINT_EVERY
    assert killed["losses"] == pytest.approx(whole["losses"][CHECKPOINT_EVERY:], rel=1e-6)
