import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.errors import InputError

JOB = """
schema_version: 1
model: llama-3.1-8b
workload:
  kind: serving
  traffic: {rate: 4/s, prompt: 50, output: 5}
cluster: here
engine: vllm
layout: {tp: 2}
"""
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def refused(*arguments):
    result = CliRunner().invoke(app, ["serve", *map(str, arguments)])
    assert isinstance(result.exception, InputError)
    return str(result.exception)


def test_a_url_needs_a_job_whose_traffic_it_is_driven_with():
    assert "whose traffic? Give --job JOB" in refused("bench", NOBODY)


def test_an_address_where_nobody_answers_is_said(job):
    message = refused("bench", NOBODY, "--job", job)
    assert f"{NOBODY} is no OpenAI-compatible server that answers" in message


def test_a_layout_that_the_server_does_not_run_starts_nothing(job, tmp_path, monkeypatch):
    weights = tmp_path / "weights"
    weights.mkdir()
    monkeypatch.setattr("meshfit.serve.bench.launched.weights_folder", lambda *_: weights)
    out = tmp_path / "out"
    message = refused("bench", "--server", "transformers", job, "--out", out)
    assert "transformers serves one rank a replica, but tp=2 has 2" in message


def test_a_fit_without_layouts_says_how_to_name_them(job, tmp_path):
    job.write_text(JOB.replace("layout: {tp: 2}", ""))
    assert "no layouts to run" in refused("fit", job, "--out", tmp_path / "out")
