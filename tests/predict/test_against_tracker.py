"""Predicted peaks against those of ``meshfit.measure.tensors.TensorTracker`` on real runs.

Each row: what our runner's fourth step took on 4 gloo CPU ranks (torch 2.13.0+cpu, transformers
5.24.0, sequences of 128 tokens, AdamW, clipping), in bytes, per pipeline rank the highest.

Rows with tp are of the dry run of the same program instead, since logits are divided up to the loss
(``tests/dryrun/test_real.py`` holds it equal to a real step byte by byte).

No constant was fitted to these rows, but rules were added or mended where the categories showed
which tensor was wrong, so the errors now are not those of unseen layouts. What they were on first
sight: Llama fp32 median 6.8 %, largest 20 %; Qwen3 fp32 (next) median 0.4 %, largest 7.3 %; Llama
bf16 (last) median 4.1 %, largest 18 %, from autocast's copies of weights for every micro-batch.
"""

import statistics

import pytest

from meshfit.engines.native.profile import NATIVE
from meshfit.predict.estimate import estimate
from meshfit.workload.training import AdapterSpec
from tests.predict.builders import BF16, FP32, cluster, layouts, llama, training

LLAMA = llama(kv_heads=4)
QWEN3 = llama(
    hidden_size=192,
    num_layers=6,
    heads=6,
    kv_heads=2,
    intermediate_size=512,
    vocab_size=2048,
    qk_norm=True,
)
MEASURED = [
    (LLAMA, FP32, {"dp_replicate": 4}, 16, (25243232,)),
    (LLAMA, FP32, {"dp_replicate": 4}, 4, (21496936,)),
    (LLAMA, FP32, {"dp_shard": 4}, 16, (12825184,)),
    (LLAMA, FP32, {"dp_shard": 4}, 4, (11359208,)),
    (LLAMA, FP32, {"dp_shard": 4, "zero_stage": 2}, 16, (14827100,)),
    (LLAMA, FP32, {"dp_shard": 4, "zero_stage": 1}, 16, (19663332,)),
    (LLAMA, FP32, {"dp_shard": 2, "dp_replicate": 2}, 16, (16565344,)),
    (LLAMA, FP32, {"tp": 4}, 16, (5958632,)),
    (LLAMA, FP32, {"tp": 4, "sp": False}, 16, (6846824,)),
    (LLAMA, FP32, {"tp": 4, "micro_batch_size": 4}, 16, (12374120,)),
    (LLAMA, FP32, {"pp": 4, "schedule": "gpipe"}, 16, (28462328, 27643116, 27643116, 37892996)),
    (LLAMA, FP32, {"pp": 4}, 16, (11682040, 10040556, 8628460, 8005448)),
    (LLAMA, FP32, {"pp": 2, "vpp": 2, "tp": 2}, 16, (10981860, 9883068)),
    (LLAMA, FP32, {"pp": 2, "dp_shard": 2}, 16, (13487460, 10566804)),
    (LLAMA, FP32, {"pp": 2, "dp_replicate": 2}, 16, (16030052, 13929876)),
    (LLAMA, FP32, {"tp": 2, "dp_shard": 2}, 16, (8581344,)),
    (LLAMA, FP32, {"tp": 2, "dp_replicate": 2}, 16, (13093480,)),
    (LLAMA, FP32, {"dp_shard": 4, "recompute": "full"}, 16, (9098336,)),
    (LLAMA, FP32, {"dp_replicate": 4, "recompute": "full", "micro_batch_size": 4}, 16, (23010912,)),
    (LLAMA, FP32, {"pp": 4, "recompute": "full"}, 16, (7744760, 7416044, 7316716, 7448904)),
    (LLAMA, FP32, {"pp": 2, "dp_shard": 2, "zero_stage": 2}, 16, (13225316, 11124372)),
    (LLAMA, BF16, {"dp_replicate": 4}, 8, (25108064,)),
    (LLAMA, BF16, {"dp_shard": 4}, 8, (8869472,)),
    (LLAMA, BF16, {"dp_shard": 4, "zero_stage": 2}, 8, (10101088,)),
    (LLAMA, BF16, {"tp": 2, "dp_shard": 2}, 4, (6425312,)),
    (LLAMA, BF16, {"tp": 2, "dp_replicate": 2}, 4, (10703208,)),
    (LLAMA, BF16, {"tp": 4}, 2, (5970920,)),
    (LLAMA, BF16, {"pp": 4}, 8, (10764536, 8672492, 7317740, 7374632)),
    (LLAMA, BF16, {"pp": 2, "dp_shard": 2}, 8, (9177444, 7878788)),
    (LLAMA, BF16, {"pp": 4, "schedule": "gpipe"}, 8, (15371512, 14568684, 14568684, 20087620)),
    (LLAMA, BF16, {"dp_shard": 4, "recompute": "full"}, 8, (6921824,)),
    (LLAMA, BF16, {"dp_replicate": 4, "recompute": "full"}, 8, (21099100,)),
    (QWEN3, FP32, {"dp_replicate": 4}, 16, (79480520,)),
    (QWEN3, FP32, {"dp_shard": 4, "micro_batch_size": 2}, 16, (51341256,)),
    (QWEN3, FP32, {"dp_shard": 2, "dp_replicate": 2}, 4, (41029072,)),
    (QWEN3, FP32, {"tp": 2, "dp_shard": 2}, 16, (25778504,)),
    (QWEN3, FP32, {"tp": 2, "dp_replicate": 2}, 16, (40966864,)),
    (QWEN3, FP32, {"tp": 2, "pp": 2}, 16, (21167896, 19833840)),
    (QWEN3, FP32, {"pp": 2, "dp_shard": 2}, 16, (36619416, 30304840)),
    (QWEN3, FP32, {"pp": 2, "vpp": 3, "dp_replicate": 2, "schedule": "interleaved_1f1b"}, 16, (54660120, 53894472)),
    (QWEN3, FP32, {"pp": 4, "stage_layers": (1, 2, 2, 1)}, 16, (24157456, 29718920, 25344392, 20892512)),
    (QWEN3, FP32, {"dp_shard": 4, "recompute": "full"}, 16, (27331528,)),
]  # fmt: skip


def errors(model, precision, keys, global_batch_size, measured):
    spec = training(global_batch_size=global_batch_size, precision=precision)
    found = estimate(model, spec, cluster(device_type="cpu"), layouts(keys), NATIVE)
    ranks = found.ranks(0)
    return [rank.total / peak - 1 for rank, peak in zip(ranks, measured, strict=True)]


@pytest.mark.parametrize(("model", "precision", "keys", "global_batch_size", "measured"), MEASURED)
def test_a_predicted_peak_is_close_to_the_tracked_one(
    model, precision, keys, global_batch_size, measured
):
    for error in errors(model, precision, keys, global_batch_size, measured):
        assert abs(error) < 0.08


def test_predicted_peaks_are_right_in_the_median_and_lean_to_neither_side():
    every = [error for row in MEASURED for error in errors(*row)]
    assert statistics.median(map(abs, every)) < 0.01
    assert abs(statistics.median(every)) < 0.005


ADAPTED = [
    (("q_proj", "k_proj", "v_proj", "o_proj"), 1, 13_025_036),
    (("q_proj", "k_proj", "v_proj", "o_proj"), 2, 22_227_724),
    (("q_proj", "v_proj"), 1, 12_787_404),
    ((), 1, 15_425_388),
]
"""Linears with an adapter of rank 8 (none named: all), sequences of a micro-batch, and the peak of one
process: four layers of 128 x 384, sequences of 256 tokens, 256 of vocabulary."""


@pytest.mark.parametrize(("targets", "sequences", "measured"), ADAPTED)
def test_a_predicted_peak_beside_adapters_is_close_to_the_tracked_one(targets, sequences, measured):
    spec = training(
        sequence_length=256,
        global_batch_size=sequences,
        adapter=AdapterSpec(rank=8, targets=targets),
    )
    model = llama(intermediate_size=384, vocab_size=256)
    alone = layouts({"micro_batch_size": sequences})
    found = estimate(model, spec, cluster(device_type="cpu"), alone, NATIVE)
    assert abs(found.ranks(0)[0].total / measured - 1) < 0.012
