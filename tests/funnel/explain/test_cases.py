"""Collectives of a step that people in the field counted."""

from meshfit.funnel.explain.explaining import explain_document
from meshfit.job.read import read_job

C17 = """\
schema_version: 1
model: tiny-llama
workload: {{kind: training, sequence_length: 128, global_batch: {batch} sequences, precision: bf16_mixed}}
cluster: 4x8 H100-SXM
layout: {{dp_shard: 8, dp_replicate: 4, micro_batch_size: 1}}
calibration: none
curves: none
"""
ACCUMULATIONS = 8


def sent(tmp_path, micro_batches: int) -> dict[tuple[str, str], tuple[int, int]]:
    """How often a step sends and how many bytes in all, by axis and collective."""
    path = tmp_path / "job.yaml"
    path.write_text(C17.format(batch=32 * micro_batches))
    job = read_job(path)
    rows = explain_document(job, job.layout)["rows"]
    return {
        (row["axis"], found["collective"]): (found["times"], found["bytes"])
        for row in rows
        for found in row["collectives"]
    }


def test_c17_replicas_are_reduced_once_a_step_however_often_gradients_accumulate(tmp_path):
    """pytorch/torchtitan#1929. That the runner does so: tests/run/test_parity.py counts it."""
    one, eight = sent(tmp_path, 1), sent(tmp_path, ACCUMULATIONS)
    replicas = ("dp_replicate", "all_reduce")
    assert eight[replicas] == one[replicas]
    assert eight[replicas][0] == 1
    shards = ("dp_shard", "reduce_scatter")
    assert eight[shards] == tuple(ACCUMULATIONS * count for count in one[shards])
