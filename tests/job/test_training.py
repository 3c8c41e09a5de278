"""Precision, method, optimizer and runtime of a job file."""

import pytest

from meshfit.errors import InputError
from meshfit.job.read import read_job
from meshfit.workload.training import PRECISIONS, AdapterSpec, RuntimeSpec

JOB = """
schema_version: 1
model: llama-3.1-8b
cluster: 1x8 H100-SXM
workload: {{sequence_length: 4096, global_batch: 8 sequences{workload}}}
{more}
"""


@pytest.fixture
def read(tmp_path):
    def read_text(workload="", more="", to_run=False):
        path = tmp_path / "job.yaml"
        path.write_text(JOB.format(workload=f", {workload}" if workload else "", more=more))
        return read_job(path, to_run=to_run)

    return read_text


def test_what_is_left_out_is_mixed_bf16_adamw_on_every_weight(read):
    training = read().training
    assert training.precision == PRECISIONS["bf16_mixed"]
    assert (training.optimizer, training.adapter, training.runtime) == (
        "adamw",
        None,
        RuntimeSpec(),
    )


@pytest.mark.parametrize("name", PRECISIONS)
def test_every_named_precision_is_taken(read, name):
    assert read(f"precision: {name}").training.precision == PRECISIONS[name]


def test_a_precision_may_be_told_copy_by_copy(read):
    job = read("precision: {compute: bf16, master: bf16, moments: fp32, fp8_recipe: tensorwise}")
    precision = job.training.precision
    assert (precision.name, precision.matmul) == ("fp8_mixed", "fp8")
    assert precision.compute_bytes == precision.parameter_bytes == precision.gradient_bytes == 2
    assert precision.moment_bytes == 4
    assert job.training.runtime.fp8_recipe == "tensorwise"


def test_two_recipes_that_differ_are_refused(read):
    with pytest.raises(InputError, match=r"runtime.fp8_recipe is rowwise, .* is tensorwise"):
        read("precision: {fp8_recipe: tensorwise}", "runtime: {fp8_recipe: rowwise}")


@pytest.mark.parametrize(
    ("method", "adapter"),
    [
        ("full", None),
        ("lora", AdapterSpec(rank=16)),
        ("qlora", AdapterSpec(rank=16, base_bits=4)),
        (
            "{lora: {rank: 8, targets: [q_proj, v_proj]}}",
            AdapterSpec(rank=8, targets=("q_proj", "v_proj")),
        ),
        ("{qlora: {rank: 64}}", AdapterSpec(rank=64, base_bits=4)),
    ],
)
def test_methods_name_their_adapters(read, method, adapter):
    assert read(f"method: {method}").training.adapter == adapter


@pytest.mark.parametrize("method", ["{}", "{lora: {rank: 8}, qlora: {rank: 8}}"])
def test_a_method_is_one_of_them(read, method):
    with pytest.raises(InputError, match=r"workload.method: write full, lora, qlora"):
        read(f"method: {method}")


def test_the_runtime_is_taken_as_written(read):
    more = "runtime: {compile: true, attention: unfused, loss: chunked, bucket: 25 MiB}"
    runtime = read(more=more).training.runtime
    assert (runtime.compile, runtime.attention, runtime.loss) == (True, "unfused", "chunked")
    assert runtime.bucket_bytes == 25 * 2**20


@pytest.mark.parametrize(
    ("workload", "more", "word"),
    [
        ("optimizer: adamm", "", "optimizer"),
        ("precision: bf17", "", "precision"),
        ("method: {lora: {ranks: 8}}", "", "ranks"),
        ("", "runtime: {kompile: true}", "kompile"),
        ("", "runtime: {attention: flsh}", "attention"),
        ("", "runtime: {attention_dropout: 1.5}", "attention_dropout"),
    ],
)
def test_what_is_misspelt_is_one_message_that_names_it(read, workload, more, word):
    with pytest.raises(InputError, match=word):
        read(workload, more)


@pytest.mark.parametrize(
    ("workload", "more", "message"),
    [
        ("method: qlora", "", "workload.method qlora is not run by the native engine"),
        ("optimizer: adamw_8bit", "", "workload.optimizer adamw_8bit is not run by the native"),
        ("precision: fp8_mixed", "", "workload.precision fp8_mixed is not run"),
        ("precision: {master: bf16}", "", "workload.precision bf16 is not run"),
        ("documents: padded", "", "workload.documents padded is not run"),
        ("", "runtime: {compile: true}", "runtime.compile is not set by the native engine"),
    ],
)
def test_the_native_engine_refuses_to_run_what_it_cannot(read, workload, more, message):
    with pytest.raises(InputError, match=message):
        read(workload, more, to_run=True)
    assert read(workload, more).training


def test_the_native_engine_runs_the_limits_and_biases_of_experts(read):
    keys = "{expert_capacity_factor: 1.25, router_bias_rate: 0, expert_imbalance: 1.5}"
    runtime = read("", f"runtime: {keys}", to_run=True).training.runtime
    assert (runtime.expert_capacity_factor, runtime.router_bias_rate) == (1.25, 0)


def _noted(tmp_path, cluster, precision):
    path = tmp_path / "noted.yaml"
    text = JOB.format(workload=f", precision: {precision}", more="")
    path.write_text(text.replace("1x8 H100-SXM", cluster))
    return any("no bf16 arithmetic" in note for note in read_job(path, to_run=False).notes)


def test_bf16_where_there_is_none_is_said(tmp_path):
    assert _noted(tmp_path, "1x8 V100-SXM2-32GB", "bf16_mixed")
    assert not _noted(tmp_path, "1x8 V100-SXM2-32GB", "fp16_mixed")
    assert not _noted(tmp_path, "1x8 H100-SXM", "bf16_mixed")
