"""``meshfit check``: one layout against the job's engine, and against others."""

import pytest

from meshfit.errors import InputError
from meshfit.funnel.check.checking import EXIT_CODES, broken_rules, check_document, engine_documents
from meshfit.job.layout import layout_of_keys
from meshfit.job.read import read_job

JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {kind: training, sequence_length: 8192, global_batch: 128 sequences}
cluster: 2x8 H100-SXM
layout: {tp: 16}
"""


@pytest.fixture
def write(tmp_path):
    def write_job(more=""):
        path = tmp_path / "job.yaml"
        path.write_text(JOB + more)
        return path

    return write_job


def by_engine(path, layout, engines):
    def read(engine):
        return read_job(path, layout=layout, engine=engine, to_run=False)

    return engine_documents(read, engines)


def test_engines_that_replicate_key_value_heads_take_what_others_refuse(write):
    rows = {row["engine"]: row for row in by_engine(write(), None, ["all"])}
    legal = {name for name, row in rows.items() if row["legal"]}
    assert legal == {"native", "megatron", "vllm", "sglang", "tensorrt_llm"}
    [refusal] = rows["torchtitan"]["violations"]
    assert refusal["option"] == "parallelism.tensor_parallel_degree"
    assert refusal["nearest"] == [1, 2, 4, 8]
    assert refusal["message"].endswith(
        "8 key/value heads cannot be divided by tp=16: torchtitan does not replicate KV heads; "
        "valid tp: [1, 2, 4, 8] (parallelism.tensor_parallel_degree)"
    )


def test_what_was_predicted_by_a_stand_in_is_marked_and_what_was_not_is_absent(write):
    found = by_engine(write(), "tp=1,dp_shard=16", ["accelerate"])
    found += by_engine(write(), "tp=8,dp_replicate=2", ["deepspeed", "vllm"])
    rows = {row["engine"]: row for row in found}
    assert rows["accelerate"]["estimated_with"] == "native 1"
    assert rows["deepspeed"]["estimated_with"].startswith("deepspeed")
    assert rows["accelerate"]["verdict"] in ("fits", "tight", "does_not_fit")
    assert rows["vllm"]["memory"] is None
    assert "vllm serves" in rows["vllm"]["absent"]["memory"]
    assert rows["vllm"]["verdict"] is None


def test_the_main_keys_stay_those_of_the_jobs_own_engine(write):
    path = write("engine: [megatron, native]\n")
    job = read_job(path, to_run=False)
    assert (job.profile.name, job.other_engines) == ("megatron", ("native",))
    document = check_document(job, job.layout)
    assert (document["engine"], document["violations"]) == ("megatron", [])
    assert {warning["rule"] for warning in document["warnings"]} == {
        "key_value_heads_replicated",
        "vocabulary_padded",
        "tensor_parallel_inside_domain",
        "one_connection_has_to_be_set",
    }


def test_keys_that_a_layout_leaves_out_mean_what_they_mean_to_each_engine(write):
    engines = ["native", "megatron", "accelerate"]
    rows = by_engine(write(), "tp=2,dp_shard=8", engines)
    assert [row["label"] for row in rows] == [
        "dp_shard=8,tp=2,zero_stage=3",
        "dp_shard=8,tp=2,zero_stage=1",
        "dp_shard=8,tp=2,zero_stage=3,sp=false",
    ]


def test_a_layout_that_cannot_be_predicted_is_legal_without_a_verdict(write):
    path = write("engine: torchtitan\n")
    job = read_job(path, layout="tp=1,pp=2,dp_replicate=8,stage_layers=32:0", to_run=False)
    document = check_document(job, job.layout)
    assert document["verdict"] is None
    assert "without a layer are not modelled" in document["absent"]["memory"]
    assert EXIT_CODES[document["verdict"]] == 0


def test_an_unknown_engine_is_one_message(write):
    with pytest.raises(InputError, match="unknown engine 'megatorn'; did you mean 'megatron'"):
        by_engine(write(), None, ["megatorn"])


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("megatron", "this version runs and exports native only"),
        ("[native, megatron]", "this version runs for one engine"),
        ("[]", "engine is an empty list"),
    ],
)
def test_only_the_native_engine_is_run(write, engine, message):
    with pytest.raises(InputError, match=message):
        read_job(write(f"engine: {engine}\n"))


def test_a_layout_that_does_not_fit_comes_with_changes_that_would_make_it_fit(write):
    job = read_job(write(), layout="tp=1,dp_replicate=16", to_run=False)
    document = check_document(job, job.layout)
    assert document["verdict"] == "does_not_fit"
    missing, *changes = document["advice"]
    assert missing.startswith("a rank needs ")
    assert "; with 10.0% headroom at most " in missing
    assert changes
    assert all(change.startswith("fits with ") for change in changes)


def test_an_illegal_layout_comes_with_legal_ones_near_it(write):
    """vllm-project/vllm#4232: not six ranks of tensor parallelism, but replicas of smaller ones or
    a pipeline."""
    path = write("engine: vllm\n")
    path.write_text(path.read_text().replace("2x8", "1x6"))
    job = read_job(path, layout="tp=6", to_run=False)
    document = check_document(job, job.layout)
    assert document["verdict"] == "invalid"
    offered = document["nearest_layouts"]
    assert {"dp_replicate": 3, "tp": 2, "sp": False} in offered
    assert {"tp": 2, "sp": False, "pp": 3} in [
        {key: value for key, value in one.items() if key != "schedule"} for one in offered
    ]
    *single, nearest = document["advice"]
    assert nearest == "nearest legal layouts: " + "; ".join(
        layout_of_keys(one, job.profile).label for one in offered
    )
    assert single == [f"legal with {change['words']}" for change in document["changes"]]
    for keys in offered:
        assert broken_rules(job, layout_of_keys(keys, job.profile)) == ()


def test_where_nothing_is_legal_no_neighbour_is_named(write):
    job = read_job(write("search: {tp: [3]}\n"), layout="tp=3", to_run=False)
    document = check_document(job, job.layout)
    assert (document["verdict"], document["nearest_layouts"], document["advice"]) == (
        "invalid", [], [],
    )  # fmt: skip
