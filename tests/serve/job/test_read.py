import pytest

from meshfit.errors import InputError
from meshfit.serve.asked.traffic import Target
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout

JOB = """
schema_version: 1
model: llama-3.1-70b
workload:
  kind: serving
  traffic: {rate: 20/s, prompt: {median: 900, p99: 8000}, output: 200}
  targets: {ttft: {p95: 500 ms}, itl: {p95: 40 ms}}
  quantization: {weights: fp8, kv_cache: fp8}
cluster: 8 H100-SXM
engine: [vllm, sglang]
layout: {replicas: 2, tp: 4}
"""


def job(tmp_path, text=JOB, **options):
    (tmp_path / "job.yaml").write_text(text)
    return read_serving_job(tmp_path, **options)


def test_a_serving_job_is_read(tmp_path):
    read = job(tmp_path)
    assert read.traffic.rate_per_s == 20
    assert read.traffic.output.sigma == 0
    assert read.targets[0] == Target(metric="ttft", percentile=95, limit_s=0.5)
    assert read.cache_element_bytes == 1.0
    assert read.model.config["quantization_config"]["quant_method"] == "fp8"
    assert [profile.name for profile in read.profiles] == ["vllm", "sglang"]
    assert read.layout == ServingLayout(replicas=2, tp=4)


def test_the_command_line_overrides_keys_of_the_layout(tmp_path):
    assert job(tmp_path, layout="replicas=1,pp=2").layout == ServingLayout(tp=4, pp=2)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("tp", "'tp' is not key=value; write it like replicas=2,tp=4"),
        ("tp=2,tp=4", "'tp' is there twice"),
        ("tp=two", "--layout.*tp"),
        ("tpp=2", "--layout.*tpp"),
    ],
)
def test_what_is_wrong_of_the_layout_on_the_command_line_is_named(tmp_path, layout, message):
    with pytest.raises(InputError, match=message):
        job(tmp_path, layout=layout)


def test_auto_leaves_the_number_of_accelerators_open(tmp_path):
    read = job(tmp_path, JOB.replace("8 H100-SXM", "auto x H100-SXM"))
    assert read.topology is None
    assert read.accelerator.startswith("H100")


def test_two_pools_are_read(tmp_path):
    text = JOB.replace("{replicas: 2, tp: 4}", "{prefill: {tp: 2}, decode: {replicas: 3, tp: 2}}")
    read = job(tmp_path, text)
    assert read.layout == DisaggregatedLayout(
        prefill=ServingLayout(tp=2), decode=ServingLayout(replicas=3, tp=2)
    )
    with pytest.raises(InputError, match="the job has two"):
        job(tmp_path, text, layout="tp=1")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("rate: 20/s", "rate: fast", "traffic.rate 'fast' is no rate; write it like 20/s"),
        ("rate: 20/s", "rate: 20/s, concurrency: 3", "takes one of rate"),
        ("rate: 20/s, ", "", "takes one of rate"),
        ("p99: 8000", "p99: 80", "p99 80 is below the median 900"),
        (", output: 200", "", "traffic.output is missing"),
        ("rate: 20/s", "rate: 20/s, trace: t.csv", "leave out rate, prompt, output"),
        ("{p95: 500 ms}", "{p955: 500 ms}", "'p955' is no percentile"),
        ("kind: serving", "kind: training", "describes training, not serving"),
        ("layout:", "serving: {memory_fraction: 0.97}\nlayout:", "0.97 leaves no room"),
        ("weights: fp8", "weights: fp5", "fp5"),
        ("[vllm, sglang]", "[]", "engine names none"),
        ("median: 900, p99: 8000", "median: 900000", "median 900000 leaves no token of output"),
        ("rate: 20/s", "rate: 20/s, shared_prefix: 200000", "shared_prefix 200000 leaves no token"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, before, after, message):
    with pytest.raises(InputError, match=message):
        job(tmp_path, JOB.replace(before, after))
