"""A real vLLM on the CPU: `make test-serving`, with an environment of its own.

docs/serving.md says how that is made, and benchmarks/results keeps what was found.
"""

import json
from pathlib import Path

import pytest
from benchmarks.vllm_capacity import CONFIG, DEGREES, capacities, predicted

from meshfit.serve.fit.fit import serving_fit
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.servers.weights import weights_folder
from meshfit.workload.families import read_family
from tests.serve.weights import damaged

KEPT = Path("benchmarks/results/2026-11-30-vllm-cpu-capacity.json")
JOB = """
schema_version: 1
model: {model}
workload:
  kind: serving
  traffic: {{rate: 2/s, prompt: {{median: 24, p99: 60}}, output: {{median: 8, p99: 20}}}}
  targets: {{ttft: {{p95: 20 s}}, e2e: {{p95: 60 s}}}}
cluster: here
baseline: {baseline}
layouts: {layouts}
serving: {{eager: true}}
run: {{requests: 12}}
"""


def job(folder: Path, *, model: Path, baseline: Path | str = "null", layouts: str):
    folder.mkdir()
    path = folder / "job.yaml"
    path.write_text(JOB.format(model=model, baseline=baseline, layouts=layouts))
    return read_serving_job(path)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Random ones, with a tokenizer."""
    folder = tmp_path_factory.mktemp("weights")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    asked = job(folder / "job", model=folder / "config.json", layouts="[]")
    return weights_folder(asked, folder / "run")


def test_todays_prediction_is_what_was_logged():
    """The kept result: tp 1, 2, and 4, beyond the two key/value heads."""
    rows = json.loads(KEPT.read_text())["rows"]
    model = read_family("llama", CONFIG)
    assert [row["tp"] for row in rows] == list(DEGREES)
    assert [row["logged_tokens"] for row in rows] == [predicted(model, tp)[1] for tp in DEGREES]
    assert rows[2]["logged_tokens"] == rows[1]["logged_tokens"] > rows[0]["logged_tokens"]


@pytest.mark.vllm
def test_the_cache_holds_as_many_tokens_as_predicted(tmp_path):
    for row in capacities(tmp_path):
        assert row.logged_tokens == row.predicted_tokens, row.tp


@pytest.mark.vllm
def test_cut_and_replicated_layouts_give_the_baselines_output(tmp_path, weights):
    asked = job(tmp_path / "job", model=weights, layouts="[{}, {tp: 2}, {replicas: 2}]")
    end = serving_fit(asked, "vllm-cpu", tmp_path / "run", say=print)
    assert [row.outcome for row in end.rows] == ["ok", "ok", "ok"]
    for row in end.rows:
        assert row.parity.ok
        assert row.bench["measured"]["served"] == 11
        assert row.bench["memory"]["claims"]["kv_tokens"] > 0
    assert end.choice.winner.label == "single"


@pytest.mark.vllm
def test_a_damaged_weight_is_caught(tmp_path, weights):
    bad = damaged(weights)
    asked = job(tmp_path / "job", model=bad, baseline=weights, layouts="[{}]")
    (row,) = serving_fit(asked, "vllm-cpu", tmp_path / "run", say=print).rows
    assert row.outcome == "parity_failed"
    assert row.parity.largest_difference > row.parity.tolerance
