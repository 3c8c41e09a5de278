import pytest

from meshfit.cli.export import export
from meshfit.errors import InputError
from tests.funnel.small_job import write_job


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        export(write_job(tmp_path), to="torchrun", layout="dp_shard=2", out=tmp_path / "file")


def test_names_with_brackets_are_printed_as_they_are(tmp_path, capsys):
    out = tmp_path / "[/red]"
    export(write_job(tmp_path), to="torchrun", layout="dp_shard=2", out=out)
    printed = capsys.readouterr().out.split()
    assert printed == sorted(map(str, out.iterdir()), key=printed.index)


SERVING = """
schema_version: 1
model: llama-3.1-70b
workload:
  kind: serving
  traffic: {rate: 4/s, prompt: {median: 900, p99: 4000}, output: 200}
  quantization: {weights: fp8}
cluster: 8 H100-SXM
layout: {tp: 2}
"""


def test_a_layout_of_a_serving_job_is_a_command_of_its_engine(tmp_path, capsys):
    """Where the cache does not hold the model's 131,072 positions, the server is told of fewer."""
    (tmp_path / "job.yaml").write_text(SERVING)
    export(tmp_path, to="vllm", layout="tp=1", out=tmp_path / "one")
    export(tmp_path, to="vllm", out=tmp_path / "two")
    assert "serve.sh" in capsys.readouterr().out
    one, two = ((tmp_path / name / "serve.sh").read_text() for name in ("one", "two"))
    assert "--tensor-parallel-size 2" in two
    assert "--max-model-len" not in two
    assert "--max-model-len" in one
    assert "--quantization fp8" in one


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {"layout": "tp=3"}, "does not serve tp=3:\n  attention_heads_divisible"),
        ({"layout: {tp: 2}": ""}, {}, "no layout of one pool"),
        ({"weights: fp8": "weights: bf16"}, {"layout": "tp=1"}, "does not fit"),
        ({}, {"rank_order": "tp,dp"}, "--rank-order is for engines that train"),
    ],
)
def test_what_does_not_serve_is_not_exported(tmp_path, changes, options, said):
    text = SERVING
    for before, after in changes.items():
        text = text.replace(before, after)
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(InputError, match=said):
        export(tmp_path, to="vllm", out=tmp_path / "out", **options)


def test_a_training_job_does_not_serve(tmp_path):
    with pytest.raises(InputError, match="not serving"):
        export(write_job(tmp_path), to="vllm", out=tmp_path / "out")
