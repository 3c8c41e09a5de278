"""What is refused before a server, or weights for one, cost anything."""

from collections import namedtuple

import pytest

from meshfit.errors import InputError
from meshfit.serve.bench.launched import bench_launched
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.servers.weights import weights_folder

JOB = """
schema_version: 1
model: llama-3.1-70b
workload: {kind: serving, traffic: {rate: 20/s, prompt: 900, output: 200}}
cluster: 2x8 H100-SXM
engine: vllm
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)
    return lambda layout: read_serving_job(tmp_path, layout=layout)


@pytest.mark.parametrize("kind", ["vllm", "vllm-cpu"])
def test_a_layout_that_the_engine_refuses_starts_nothing(job, tmp_path, kind):
    with pytest.raises(
        InputError, match=r"vllm does not serve .*tp=9.*\n  attention_heads_divisible"
    ):
        bench_launched(job("tp=9"), kind, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_random_weights_are_not_begun_where_they_would_not_fit(job, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")(free=50 * 2**30)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(
        InputError, match=r"random weights of .* take 263 GiB, and 50.0 GiB are free"
    ):
        weights_folder(job("tp=8"), tmp_path / "run")
    assert not (tmp_path / "run/config.json").exists()
