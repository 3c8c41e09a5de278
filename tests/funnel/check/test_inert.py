"""Keys that a job sets and that move nothing are named."""

import pytest

from meshfit.errors import InputError
from meshfit.funnel.check.checking import check_document
from meshfit.funnel.plan.plan_document import plan_document
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job

JOB = """
schema_version: 1
model: llama-3.1-8b
engine: {engine}
workload: {{sequence_length: 4096, global_batch: 64 sequences}}
cluster: {cluster}
runtime: {runtime}
layout: {{tp: 8}}
search: {{tp: 8}}
"""


def job_in(folder, runtime, engine="native", cluster="1x8 H100-SXM"):
    path = folder / "job.yaml"
    path.write_text(JOB.format(engine=engine, runtime=runtime, cluster=cluster))
    return read_job(path, to_run=False)


def notes(job):
    return [note for note in check_document(job, job.layout)["notes"] if "runtime." in note]


@pytest.mark.parametrize(
    ("engine", "runtime", "inert"),
    [
        ("native", "{compile: true, loss: fused}", None),
        ("native", "{overlap_gradients: true}", "runtime.overlap_gradients moves"),
        ("megatron", "{compile: true}", "runtime.compile moves"),
        (
            "native",
            "{bucket: 25 MiB, fp8_recipe: rowwise}",
            "runtime.fp8_recipe, runtime.bucket move",
        ),
        ("torchtitan", "{compile: true}", None),
        ("native", "{power_limit: 450 W}", None),
        ("native", "{expert_imbalance: 1.5}", "runtime.expert_imbalance moves"),
    ],
)
def test_a_key_without_effect_is_named_and_one_with_an_effect_is_not(
    tmp_path, engine, runtime, inert
):
    """The engine's own choice (``compile`` of torchtitan) is no key without effect."""
    found = notes(job_in(tmp_path, runtime, engine))
    if inert is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith(inert)


def test_a_plan_says_so_too(tmp_path):
    document = plan_document(make_plan(job_in(tmp_path, "{compile: true}", "megatron")))
    assert any(note.startswith("runtime.compile moves neither") for note in document["notes"])


def test_a_power_limit_where_no_power_is_known_is_named(tmp_path):
    job = job_in(
        tmp_path,
        "{power_limit: 30 W}",
        cluster="{here: {ranks: 8, device: cpu, oversubscribe: true}}",
    )
    assert job.topology.accelerator.power_limit_w == 30.0
    assert notes(job)[0].startswith("runtime.power_limit moves neither")


@pytest.mark.parametrize("limit", ["fast", "0 W", "-5 W", "450 kW"])
def test_a_power_limit_is_written_in_watts(tmp_path, limit):
    with pytest.raises(InputError, match="write it like '450 W'"):
        job_in(tmp_path, f"{{power_limit: {limit}}}")
