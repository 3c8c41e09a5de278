import json

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.errors import InputError, NothingFitsError

JOB = """
schema_version: 1
model: llama-3.1-8b
workload:
  kind: serving
  traffic: {rate: 4/s, prompt: {median: 500, p99: 2000}, output: {median: 50, p99: 200}}
  targets: {ttft: {p95: 5 s}}
cluster: 8 H100-SXM
engine: vllm
layout: {replicas: 2, tp: 2}
run: {requests: 300}
"""


def simulate(tmp_path, *options, text=JOB):
    (tmp_path / "job.yaml").write_text(text)
    return CliRunner().invoke(app, ["serve", "simulate", str(tmp_path), *options])


def test_latencies_come_with_the_distance_from_saturation(tmp_path):
    result = simulate(tmp_path, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert set(document["latencies"]) == {"ttft", "itl", "tpot", "e2e"}
    assert set(document["latencies"]["ttft"]) == {"p50", "p90", "p95", "p99"}
    saturation = document["saturation"]
    assert saturation["distance"] == pytest.approx(
        1 - document["offered_rate"] / saturation["rate"]
    )
    assert document["layout"] == {"replicas": 2, "tp": 2}


def test_the_table_never_shows_latencies_without_saturation(tmp_path):
    shown = simulate(tmp_path).stdout
    assert "saturation" in shown
    assert "queues end" in shown


def test_beyond_saturation_latencies_are_said_to_mean_nothing(tmp_path):
    result = simulate(tmp_path, "--rate", "10000", "--json")
    document = json.loads(result.stdout)
    assert document["saturation"]["stability"] == "overloaded"
    assert "grow with their number" in document["saturation"]["meaning"]


def test_a_missed_target_ends_with_1_and_is_named(tmp_path):
    result = simulate(tmp_path, "--json", text=JOB.replace("5 s", "1 ms"))
    assert result.exit_code == 1
    assert json.loads(result.stdout)["missed_targets"]["ttft.p95"] > 1e-3


def test_two_pools_and_a_cluster_of_the_size_they_take(tmp_path):
    text = JOB.replace("{replicas: 2, tp: 2}", "{prefill: {}, decode: {replicas: 2}}")
    result = simulate(tmp_path, "--json", text=text.replace("8 H100-SXM", "auto x H100-SXM"))
    assert set(json.loads(result.stdout)["pools"]) == {"prefill", "decode"}


@pytest.mark.parametrize(
    ("before", "after", "kind", "message"),
    [
        ("layout: {replicas: 2, tp: 2}\n", "", InputError, "no layout to simulate"),
        ("replicas: 2", "replicas: 8", InputError, "takes 16 accelerators.*has 8"),
        ("8b", "405b", NothingFitsError, "does not fit: a rank holds .* of weights"),
    ],
)
def test_what_cannot_be_simulated_is_refused(tmp_path, before, after, kind, message):
    result = simulate(tmp_path, text=JOB.replace(before, after))
    assert isinstance(result.exception, kind)
    with pytest.raises(kind, match=message):
        raise result.exception
