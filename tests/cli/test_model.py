"""``meshfit model`` prints one table, or one JSON document, on stdout."""

import json

import pytest
import typer
from typer.testing import CliRunner

import meshfit.cli.model as command
from meshfit.cli import verify
from meshfit.cli.model import model
from meshfit.errors import InputError, NotInstalledError, RunError
from meshfit.workload.parts import PARTS

app = typer.Typer()
app.command()(model)


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_is_one_document_with_the_published_keys():
    document = json.loads(run("qwen3-0.6b", "--json"))
    assert document["parameters"]["total"] == 596049920
    assert document["parameters"]["by_part"]["lm_head"] == 0
    assert document["kv_cache"]["bytes_per_token"] == 114688
    assert document["flops"]["sequence_length"] == 4096
    assert document["flops"].keys() >= {"forward_per_token", "training_per_token", "formula"}


def test_the_sequence_length_changes_attention_only():
    short = json.loads(run("llama-3.1-8b", "--json", "--sequence-length", "1"))
    long = json.loads(run("llama-3.1-8b", "--json", "--sequence-length", "8193"))
    growth = long["flops"]["forward_per_token"] - short["flops"]["forward_per_token"]
    assert growth == 32 * 4 * 32 * 128 * (8192 / 2)


def test_the_table_shows_parts_total_and_formula():
    shown = run("mistral-7b")
    assert "7,241,732,096" in shown
    assert "window 4096 in 32 layers" in " ".join(shown.split())
    assert "(s + 1) / 2" in " ".join(shown.split())


def test_a_config_file_is_read_from_its_path(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "gpt2", "n_layer": 1, "extra": Infinity}')
    document = json.loads(run(str(file), "--json"))
    assert document["name"] == str(file)
    assert document["dimensions"]["num_hidden_layers"] == 1


def test_wrong_input_is_left_to_the_command_line_as_an_input_error():
    result = CliRunner().invoke(app, ["no-such-model"])
    assert isinstance(result.exception, InputError)
    assert result.stdout == ""


def test_verify_builds_the_model_and_agrees():
    pytest.importorskip("transformers")
    document = json.loads(run("deepseek-v3", "--json", "--verify"))
    assert document["verified"]["agrees"]
    assert document["verified"]["class"] == "DeepseekV3ForCausalLM"
    assert document["verified"]["difference"] == {}
    assert "Verified: agrees with GPT2LMHeadModel" in " ".join(run("gpt2", "--verify").split())


def test_counts_that_differ_are_an_error_of_the_run(monkeypatch):
    built = {"class": "X", "version": "0", "total": 1, "by_part": dict.fromkeys(PARTS, 0)}
    monkeypatch.setattr(command, "built_counts", lambda config: built)
    result = CliRunner().invoke(app, ["gpt2", "--verify", "--json"])
    assert result.exit_code == RunError.exit_code
    assert json.loads(result.stdout)["verified"]["difference"]["norm"] == 38400


def test_verify_without_transformers_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(verify, "find_spec", lambda name: None)
    with pytest.raises(
        NotInstalledError, match=r"torch and transformers cannot be imported; pip install"
    ):
        verify.built_counts({})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deepseek-v3", "58 x self_attn LatentAttention, mlp Moe"),
        ("deepseek-v3", "256 experts of 2048, 8 a token"),
        ("qwen3.5-27b", "recurrent state per sequence"),
        ("qwen3.5-27b", "Note: vision_config is left out"),
        ("glm-5", "indexer keys per token"),
        ("gpt-oss-20b", "windowed layers up to their window"),
        ("gpt-oss-20b", "weights as stored: mxfp4"),
    ],
)
def test_the_table_shows_what_a_kind_of_model_has(name, words):
    assert words in " ".join(run(name).split())


def test_a_model_in_an_unknown_family_is_refused_with_the_nearest(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "lamma"}')
    result = CliRunner().invoke(app, [str(file)])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).endswith("model_type 'lamma' is not known; nearest: llama")
