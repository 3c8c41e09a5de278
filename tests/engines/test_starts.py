"""The program that runs under Accelerate's exported YAML, and which engines are started at all."""

import ast
from dataclasses import replace

import pytest

from meshfit.engines.exports import EXPORTS
from meshfit.engines.starts import NOT_STARTED, STARTS
from meshfit.errors import InputError
from meshfit.funnel.sweep.handover import handover_of
from meshfit.job.read import read_job
from meshfit.workload.training import PRECISIONS, AdapterSpec
from tests.funnel.small_job import write_job


@pytest.fixture
def given(tmp_path):
    """A small job's handover to Accelerate, replicas on two CPU ranks."""
    job = read_job(
        write_job(tmp_path), layout="dp_replicate=2,micro_batch_size=1", engine="accelerate",
        to_run=False,
    )  # fmt: skip
    return handover_of(job, job.layout)


def on(given, device_type):
    accelerator = replace(given.topology.accelerator, device_type=device_type)
    return replace(given, topology=replace(given.topology, accelerator=accelerator))


def program_of(given, **training):
    changed = replace(given, training=replace(given.training, **training))
    return STARTS["accelerate"](changed, None).files["train.py"]


def test_every_engine_that_has_files_is_started_or_says_why_not():
    assert STARTS.keys() | NOT_STARTED.keys() == EXPORTS.keys()
    assert not STARTS.keys() & NOT_STARTED.keys()


def test_the_program_trains_the_jobs_batch(given):
    program = program_of(given)
    assert "per_device_train_batch_size=1," in program
    assert "gradient_accumulation_steps=2," in program
    assert f"learning_rate={given.training.learning_rate}," in program


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("source", ["text", "synthetic"])
@pytest.mark.parametrize("precision", ["fp32", "bf16_mixed"])
def test_the_program_is_python_whatever_it_trains(given, device, source, precision):
    data = replace(
        given.training.data, source=source, path="corpus.txt" if source == "text" else None
    )
    program = program_of(on(given, device), data=data, precision=PRECISIONS[precision])
    ast.parse(program)
    assert ("bf16=True" in program) == (precision == "bf16_mixed")
    assert ("use_cpu=True" in program) == (device == "cpu")
    assert ("max_memory_allocated" in program) == (device == "cuda")


def test_accelerate_is_told_to_use_the_cpu_by_its_variable(given):
    assert STARTS["accelerate"](given, None).variables == {"ACCELERATE_USE_CPU": "true"}
    assert STARTS["accelerate"](on(given, "cuda"), None).variables == {}


def test_shards_run_on_accelerators_alone(given):
    shards = replace(given.layout, dp_replicate=1, dp_shard=2, zero_stage=3)
    sharded = replace(given, layout=shards)
    with pytest.raises(InputError, match="use dp_replicate"):
        STARTS["accelerate"](sharded, None)
    assert STARTS["accelerate"](on(sharded, "cuda"), None).command[:2] == ("accelerate", "launch")


def test_torchtitan_starts_its_exported_script_on_gpus(given):
    assert STARTS["torchtitan"](on(given, "cuda"), None).command == ("bash", "launch.sh")


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "muon"},
        {"adapter": AdapterSpec(rank=8)},
        {"precision": PRECISIONS["fp8_mixed"]},
    ],
)
def test_what_the_trainer_has_no_setting_for_is_refused(given, change):
    with pytest.raises(InputError, match="accelerate: "):
        program_of(given, **change)
