"""``meshfit model`` prints one table, or one JSON document, on stdout."""

import json

import pytest
import typer
from typer.testing import CliRunner

from meshfit.cli.model import model
from meshfit.errors import InputError

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


@pytest.mark.parametrize("arguments", [("no-such-model",), ("gpt2", "--sequence-length", "0")])
def test_wrong_input_is_left_to_the_command_line_as_an_input_error(arguments):
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, InputError)
    assert result.stdout == ""
