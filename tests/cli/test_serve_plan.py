import json
import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.errors import InputError

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving"
TOO_SMALL = """
schema_version: 1
model: llama-3.1-405b
workload:
  kind: serving
  traffic: {rate: 1/s, prompt: 500, output: 100}
cluster: 1 H100-SXM
engine: [vllm, sglang, tensorrt_llm]
"""


def plan(*options):
    return CliRunner().invoke(app, ["serve", "plan", *map(str, options)])


def shown(*options):
    """The same on a wide terminal, which tables are cut to."""
    command = [sys.executable, "-m", "meshfit.cli.main", "serve", "plan", *map(str, options)]
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_example_has_a_table_of_layouts_and_their_front():
    result = shown(EXAMPLE)
    assert result.returncode == 0
    for text in ("vllm 4 x tp=2", "tp x 2", "USD", "no measured server behind it", "*"):
        assert text in result.stdout


def test_json_holds_every_layout_of_each_engine():
    document = json.loads(plan(EXAMPLE, "--json", "--all").stdout)
    space = document["space"]
    assert len(document["candidates"]) == space["legal"] + space["pairs_of_pools"]
    assert space["legal"] == 20
    assert space["pairs_of_pools"] > 0
    assert {one["engine"] for one in document["candidates"]} == {"vllm", "sglang"}
    assert document["accelerators"] == 8


def test_what_does_not_fit_says_so_with_what_is_lacking(tmp_path):
    (tmp_path / "job.yaml").write_text(TOO_SMALL)
    result = shown(tmp_path)
    assert result.returncode == 1
    assert "1 layouts do not fit" in result.stdout
    assert "of 79.1 GiB for 756 GiB of weights" in result.stdout
    candidate = json.loads(plan(tmp_path, "--json").stdout)["candidates"][0]
    assert candidate["verdict"] == "does_not_fit"
    assert candidate["ttft"] is None
    assert candidate["least_memory_fraction"] > 9


def test_a_training_job_is_refused():
    result = plan(EXAMPLE.parent / "tiny-llama")
    assert isinstance(result.exception, InputError)
    assert "not serving" in str(result.exception)


def test_validate_serving_holds_predictions_against_a_table():
    table = EXAMPLE.parents[1] / "tests" / "validate" / "data" / "serving_subset.csv"
    command = ["validate", "serving", str(table), "--targets"]
    shown = CliRunner().invoke(app, command)
    document = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert "regret of the chosen layout" in shown.stdout
    missed = any(not target["reached"] for target in document["targets"])
    assert shown.exit_code == int(missed)
    assert len(document["rows"]) == 2 * document["coverage"]["rows"]
