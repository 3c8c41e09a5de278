"""Files that are given as a job and are none, or one of the other kind."""

import pytest

from meshfit.errors import InputError
from meshfit.job.kinds import read_job_mapping

SERVING = "schema_version: 1\nmodel: gpt2\nworkload: {kind: serving, traffic: {rate: 1/s}}\n"
TRAINING = "schema_version: 1\nmodel: gpt2\nworkload: {sequence_length: 32, global_batch: 8}\n"


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("training", SERVING, "describes serving, not training; `meshfit serve plan`"),
        ("serving", TRAINING, "describes training, not serving; `meshfit check`, `plan`"),
        (
            "training",
            "accelerator: H100\nlevels: []\n",
            "describes a cluster; a job names it under",
        ),
        ("training", "accelerators: {X: {}}\n", "is a catalogue; MESHFIT_CATALOGUE names it"),
        ("serving", "model_type: llama\n", "is the config of a model; `meshfit model` takes it"),
        ("training", '{"train_batch_size": 8}', "is a JSON file of DeepSpeed, no job of meshfit"),
        ("training", "torchrun t.py --micro-batch-size 4", "is arguments of Megatron-LM, no job"),
        ("serving", "vllm serve gpt2", "is a command of vLLM, no job of meshfit; `meshfit check`"),
        ("training", "{not yaml", "is not YAML at line 1"),
    ],
)
def test_another_file_is_named_with_what_takes_it(tmp_path, kind, text, message):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_job_mapping(path, kind)


@pytest.mark.parametrize(("kind", "text"), [("training", TRAINING), ("serving", SERVING)])
def test_a_job_of_the_kind_is_read(tmp_path, kind, text):
    path = tmp_path / "job.yaml"
    path.write_text(text + "# --num-layers is what Megatron calls it\n")
    assert read_job_mapping(path, kind)["model"] == "gpt2"


def test_a_file_that_is_not_there_is_said_to_be_none(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_job_mapping(tmp_path / "job.yaml", "training")
