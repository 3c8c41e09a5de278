"""What engines' own code prints is what their logs are read by."""

import os
import subprocess
from pathlib import Path

import pytest

from meshfit.engines.logs.read import read_log

PRINTING = Path(__file__).parent / "printing"


def printed_by(engine, folder, *words):
    """A log that an engine's own code printed, read."""
    path = folder / "train.log"
    python = os.environ["MESHFIT_ENGINE_PYTHON"]
    environment = os.environ | {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    with path.open("wb") as file:
        subprocess.run(
            [python, "-W", "ignore", PRINTING / f"{engine}_prints.py", *words],
            check=True,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    return read_log(path, {"world_size": 4, "global_batch_size": 16, "sequence_length": 1024})


@pytest.mark.engines
def test_torchtitan(tmp_path):
    log = printed_by("torchtitan", tmp_path)
    assert log.engine == "torchtitan"
    assert [(one.step, one.loss) for one in log.steps] == [(1, 6.5), (2, 5.5)]
    assert [one.gradient_norm for one in log.steps] == [1.25, 1.25]
    assert log.steps[0].step_s == pytest.approx(16 * 1024 / (8192 * 4), rel=0.05)
    assert log.steps[0].flops_per_s == pytest.approx(8.19e12, rel=0.05)
    assert log.steps[0].mfu == pytest.approx(0.0082, rel=0.05)
    assert log.memory.reserved == round(2.5 * 2**30)
    assert log.notes == ()


@pytest.mark.engines
def test_deepspeed(tmp_path):
    log = printed_by("deepspeed", tmp_path)
    assert (log.engine, log.engine_version) == ("deepspeed", "0.19.8")
    assert [one.step for one in log.steps] == [1, 2, 3]
    assert all(0.1 <= one.step_s < 0.5 for one in log.steps)
    assert log.memory.allocated is not None
    assert log.notes == ()


@pytest.mark.engines
def test_megatron(tmp_path):
    log = printed_by("megatron", tmp_path, os.environ["MESHFIT_MEGATRON_CORE"])
    assert log.engine == "megatron"
    assert [(one.step, one.num_steps, one.step_s) for one in log.steps] == [
        (1, 1, 0.25), (2, 2, 0.125), (3, 1, 0.25),
    ]  # fmt: skip
    assert [one.loss for one in log.steps] == [8.5, 8.0, 6.5]
    assert [one.gradient_norm for one in log.steps] == [2.345] * 3
    assert [one.flops_per_s for one in log.steps] == [400e12, 800e12, 400e12]
    assert (log.memory.allocated, log.memory.allocated_rank) == (0, 0)
    assert log.notes == ()


def test_transformers_trainer(capsys, tmp_path):
    from transformers import TrainerControl, TrainerState
    from transformers.trainer_callback import PrinterCallback

    def log(entry):
        PrinterCallback().on_log(None, TrainerState(), TrainerControl(), logs=entry)

    for step in (1, 2):
        log({"loss": 7.5 - step, "grad_norm": 1.25, "learning_rate": 2e-4, "epoch": step / 2})
    log({"train_runtime": 4.0, "train_steps_per_second": 0.5, "train_loss": 6.0, "epoch": 1.0})
    path = tmp_path / "train.log"
    path.write_text(capsys.readouterr().out)
    found = read_log(path)
    assert [one.loss for one in found.steps] == [6.5, 5.5]
    assert found.run_mean_step_s == 2.0
