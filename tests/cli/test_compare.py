"""``meshfit compare --log``: what a log says, beside the prediction of the job that ran."""

import json

import jsonschema
import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.errors import InputError
from meshfit.record.engine_log import EngineLog
from tests.cli.test_json_keys import COUNT, INTERVAL, NUMBER, TEXT, keys, listed, maybe
from tests.engines.logs import samples

JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {sequence_length: 8192, global_batch: 64 sequences, precision: bf16_mixed}
cluster: 2x8 H100-SXM
engine: ENGINE
layout: LAYOUT
"""
TP4_PP2 = "{tp: 4, pp: 2, dp_replicate: 2, micro_batch_size: 1}"
FSDP = "{dp_shard: 16, micro_batch_size: 1}"

MEASURED = keys(
    step_time=maybe(keys(median=NUMBER, p10=maybe(NUMBER), p90=maybe(NUMBER), statements=COUNT)),
    tokens_per_s=maybe(NUMBER),
    tokens_per_s_per_accelerator=maybe(NUMBER),
    mfu_printed=maybe(NUMBER),
    memory=keys(allocated=maybe(COUNT), reserved=maybe(COUNT), resident=maybe(COUNT)),
    losses={"type": "object", "additionalProperties": maybe(NUMBER)},
)
LOG = keys(engine=TEXT, form=TEXT, starts=COUNT, stated={"type": "object"}, notes=listed(TEXT))
ALONE = keys(log=LOG, measured=MEASURED, absent={"type": "object"}, record={"type": "object"})
ROW = keys(figure=TEXT, measured=NUMBER, predicted=NUMBER, low=NUMBER, high=NUMBER, ratio=NUMBER,
           inside={"type": "boolean"})  # fmt: skip
COMPARED = {
    "allOf": [
        ALONE,
        keys(
            label=TEXT,
            engine=TEXT,
            predicted=maybe(keys(step_time=INTERVAL, memory=INTERVAL, tokens_per_s=NUMBER)),
            comparison=listed(ROW),
            off=listed(TEXT),
        ),
    ]
}


def megatron_log(milliseconds=4100.0):
    arguments = samples.megatron_arguments(
        world_size=16, seq_length=8192, tensor_model_parallel_size=4,
        pipeline_model_parallel_size=2, global_batch_size=64, micro_batch_size=1,
    )  # fmt: skip
    return [
        *arguments,
        samples.MEGATRON_START,
        samples.megatron_step(1, milliseconds=20000.0, batch=64),
        samples.megatron_memory(0, 26000, 28000),
        samples.megatron_memory(8, 23000, 25500),
        *(samples.megatron_step(n, milliseconds=milliseconds, batch=64) for n in range(2, 20)),
    ]


@pytest.fixture
def compared(tmp_path):
    """Compares a log of these lines with a job; a document where ``as_json``, else what is shown."""

    def run(lines, *options, engine="megatron", layout=TP4_PP2, job=True, as_json=True):
        log, file = tmp_path / "train.log", tmp_path / "job.yaml"
        log.write_text("\n".join(lines) + "\n")
        file.write_text(JOB.replace("ENGINE", engine).replace("LAYOUT", layout))
        words = ["compare", *([str(file)] if job else []), "--log", str(log), *options]
        result = CliRunner().invoke(app, [*words, *(["--json"] if as_json else [])])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return json.loads(result.stdout) if as_json else result.stdout

    return run


def test_a_log_alone_says_what_it_has_and_why_the_rest_is_absent(compared):
    document = compared(megatron_log(), job=False)
    jsonschema.validate(document, ALONE)
    measured = document["measured"]
    assert measured["step_time"]["median"] == 4.1
    assert measured["tokens_per_s"] == pytest.approx(64 * 8192 / 4.1)
    assert measured["tokens_per_s_per_accelerator"] == pytest.approx(64 * 8192 / 4.1 / 16)
    assert measured["memory"]["allocated"] == 26000 * 2**20
    assert measured["losses"]["19"] == 9.5
    assert "no peak" in document["absent"]["mfu_printed"]


def test_the_record_in_the_document_is_read_back(compared):
    document = compared(megatron_log(), job=False)
    record = TypeAdapter(EngineLog).validate_python(document["record"])
    assert [one.step for one in record.steps] == list(range(1, 20))
    assert record.memory.allocated_rank == 0


def test_a_log_stands_beside_the_prediction_of_its_job(compared):
    document = compared(megatron_log())
    jsonschema.validate(document, COMPARED)
    assert [row["figure"] for row in document["comparison"]] == [
        "step_time", "memory_allocated", "memory_reserved",
    ]  # fmt: skip
    for row in document["comparison"]:
        assert row["ratio"] == pytest.approx(row["measured"] / row["predicted"])
        assert row["inside"] == (row["low"] <= row["measured"] <= row["high"])
    assert 0 < document["measured"]["mfu"] < 1


def test_memory_is_held_against_the_stage_of_the_rank_that_printed_it(compared):
    first = compared(megatron_log())["predicted"]["stages"][0]["allocated"]
    last_only = [line for line in megatron_log() if "[Rank 0]" not in line]
    document = compared(last_only)
    row = document["comparison"][1]
    assert row["measured"] == 23000 * 2**20
    assert row["predicted"] == document["predicted"]["stages"][1]["allocated"] != first


def test_what_lies_outside_its_interval_is_said_in_words(compared):
    document = compared(megatron_log(9000.0))
    assert document["off"][0].startswith("step time 9.00 s is 2.")
    shown = compared(megatron_log(9000.0), as_json=False)
    assert "• step time 9.00 s is 2." in shown
    assert "times what is predicted" in shown


def test_a_log_of_another_setting_than_the_job_is_refused_with_every_difference(compared):
    with pytest.raises(InputError, match=r"tp 4 in the log, 2 in the job\. .*--layout"):
        compared(megatron_log(), "--layout", "tp=2,dp_replicate=4")


def test_a_prediction_is_for_the_engine_whose_log_it_is(compared):
    lines = samples.titan_start(dp_shard=16, batch=64, length=8192)
    lines += [samples.titan_step(n, 5.0 * n, tps=6400, memory=55.0) for n in range(1, 12)]
    document = compared(lines, layout=FSDP, engine="native")
    assert document["engine"] == "torchtitan"
    assert document["measured"]["mfu_printed"] == 0.415
    assert [row["figure"] for row in document["comparison"]] == ["step_time", "memory_reserved"]


def test_a_layout_that_the_engine_has_no_rule_for_is_read_without_a_prediction(compared):
    lines = [samples.titan_step(n, 5.0 * n) for n in range(1, 12)]
    document = compared(lines, layout="{tp: 16, micro_batch_size: 1}", engine="torchtitan")
    jsonschema.validate(document, COMPARED)
    assert document["predicted"] is None
    assert "not legal by the rules of torchtitan" in document["absent"]["predicted"]
    assert document["measured"]["step_time"]["median"] > 0


def test_a_warm_up_longer_than_the_log_leaves_no_step_time(compared):
    document = compared(megatron_log(), "--warmup", "50")
    assert document["measured"]["step_time"] is None
    assert "--warmup" in document["absent"]["step_time"]
    assert [row["figure"] for row in document["comparison"]] == [
        "memory_allocated", "memory_reserved",
    ]  # fmt: skip


def test_an_engines_own_file_is_a_job_too(tmp_path, compared):
    script = tmp_path / "pretrain.sh"
    script.write_text(
        "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size 2 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
        "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 8192 "
        "--max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 64 --bf16 "
        "--vocab-size 128256 --swiglu --untie-embeddings-and-output-weights "
        "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear\n"
    )
    document = compared(
        megatron_log(), str(script), "--gpus", "16", "--accelerator", "H100-SXM", job=False
    )
    assert document["engine"] == "megatron"
    assert document["comparison"][0]["figure"] == "step_time"


def test_options_for_an_engines_file_are_refused_without_one(compared):
    with pytest.raises(InputError, match="--gpus is for a file of an engine"):
        compared(megatron_log(), "--gpus", "16", job=False)
