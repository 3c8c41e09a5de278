"""The funnel on real servers: small ones of transformers, few requests."""

import json
from pathlib import Path

import pytest

from meshfit.errors import InputError
from meshfit.serve.fit.fit import baseline_layout, serving_fit
from meshfit.serve.job.read import read_serving_job
from tests.serve.weights import damaged

CONFIG = Path("examples/tiny-llama/config.json")
JOB = """
schema_version: 1
model: {model}
workload:
  kind: serving
  traffic: {{rate: 5/s, prompt: 16, output: 4}}
  targets: {{ttft: {{p95: 5 min}}}}
cluster: here
baseline: {baseline}
layouts: {layouts}
run: {{requests: 4}}
"""


@pytest.fixture
def weights(tmp_path):
    from meshfit.run.model.weights import write_initial_weights

    folder = tmp_path / "good"
    write_initial_weights(json.loads(CONFIG.read_text()), folder, 0)
    return folder


def job(tmp_path, *, model, baseline, layouts):
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(model=model, baseline=baseline, layouts=layouts))
    return read_serving_job(path)


@pytest.mark.dist
@pytest.mark.heavy
def test_a_damaged_weight_is_caught_and_layouts_that_fail_are_rows(tmp_path, weights):
    asked = job(tmp_path, model=damaged(weights), baseline=weights, layouts="[{}, {tp: 2}]")
    said: list[str] = []
    end = serving_fit(asked, "transformers", tmp_path / "run", say=said.append)
    whole, cut = end.rows
    assert (whole.outcome, cut.outcome) == ("parity_failed", "launch_error")
    assert whole.parity.largest_difference > whole.parity.tolerance
    assert whole.bench["measured"]["served"] == 4
    assert "one rank a replica" in cut.failure
    assert end.choice.winner is None
    assert said[0].startswith("2 of 2 layouts to run")

    again: list[str] = []
    resumed = serving_fit(asked, "transformers", tmp_path / "run", say=again.append)
    assert (resumed.rows, again) == (end.rows, [])


def test_a_job_without_layouts_says_how_to_name_them(tmp_path):
    asked = job(tmp_path, model=CONFIG.resolve(), baseline="null", layouts="[]")
    with pytest.raises(InputError, match="no layouts to run: write `layouts:"):
        serving_fit(asked, "transformers", tmp_path / "run", say=print)


def test_layouts_of_two_pools_are_not_started_here(tmp_path):
    layouts = "[{prefill: {}, decode: {}}]"
    asked = job(tmp_path, model=CONFIG.resolve(), baseline="null", layouts=layouts)
    with pytest.raises(InputError, match="for one pool, not for two"):
        serving_fit(asked, "transformers", tmp_path / "run", say=print)


def test_a_baseline_without_weights_is_refused(tmp_path):
    with pytest.raises(InputError, match="is no folder with weights"):
        job(tmp_path, model=CONFIG.resolve(), baseline=tmp_path, layouts="[]")


@pytest.mark.parametrize(
    ("cluster", "kind", "width"), [("8 H100-SXM", "vllm", 2), ("here", "vllm-cpu", 1)]
)
def test_the_baseline_is_the_narrowest_that_fits(tmp_path, cluster, kind, width):
    job(tmp_path, model="llama-3.1-70b", baseline="null", layouts="[{tp: 8}]")
    path = tmp_path / "job.yaml"
    path.write_text(path.read_text().replace("cluster: here", f"cluster: {cluster}"))
    asked = read_serving_job(path)
    assert baseline_layout(asked, kind).tp == width
