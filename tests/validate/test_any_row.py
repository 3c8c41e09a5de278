"""Whatever a row of the schema says, it has figures that can be, or one reason in a line."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.validate.frameworks import READERS
from meshfit.validate.predictions import predict_row
from tests.validate.builders import row

FRAMEWORKS = sorted({words for words, _ in READERS} | {"", "Megatron-LM", "made up"})
COLUMNS = {
    "framework": FRAMEWORKS,
    "framework_ver": ["", "core r0.8.0", "24.07"],
    "date": ["", "2021-05..07", "2025-01"],
    "model": ["llama3-8b", "deepseek-v3-671b", "grok1-314b", "nemotron-h-56b", "nobodys-7b"],
    "arch": ["dense", "moe", "moe-mla", "dense-mla", "hybrid-mamba", "hybrid-mamba-moe", ""],
    "n_layers": ["4", "61", ""],
    "n_kv_heads": ["", "8", "1"],
    "vocab": ["", "128256"],
    "task": ["pretrain", "sft", "sft-full", "lora", "qlora", "adapter", ""],
    "gpu": [
        "H100-80GB", "A100-40GB", "GB200-192GB", "B200-180GB", "H20-96GB", "MI300X-192GB",
        "MI250-64GB", "V100-16GB", "L40S-48GB", "RTX4090-24GB", "TPUv5p-95GB", "Q9000", "",
    ],
    "gpus_per_node": ["", "4", "8"],
    "n_gpus": ["", "1", "3", "8", "128", "2048"],
    "interconnect": ["", "PCIe", "4x100 Gb RoCE per node", "AWS p5.48xlarge EFA"],
    "tp": ["1", "2", "8", ""],
    "sp": ["", "0", "1"],
    "pp": ["1", "2", "16", ""],
    "vpp": ["", "2"],
    "cp": ["", "1", "4"],
    "ep": ["", "1", "8"],
    "etp": ["", "1", "4"],
    "dp": ["", "1", "8", "48"],
    "dp_shard": ["", "1", "8", "64"],
    "zero_stage": ["", "0", "1", "2", "3"],
    "mbs": ["", "1", "4"],
    "gbs": ["", "1", "64"],
    "grad_accum": ["", "1", "8"],
    "seq_len": ["", "512", "131072"],
    "recompute": ["", "none", "full", "selective op AC", "selective (core attention)", "config default"],
    "precision": ["bf16", "fp8", "float8 rowwise", "mxfp8", "fp16 mixed", "bf16-true + bnb.nf4", "fp32", ""],
    "optimizer": ["", "AdamW", "8-bit AdamW in backward", "Muon", "SGD"],
    "pp_schedule": ["", "1F1B", "Interleaved 1F1B", "GPipe", "AFAB", "ZBV", "DualPipeV", "ZB-H1", "V-Half"],
    "attn": ["", "flash", "local/unfused", "cudnn"],
    "offload": ["", "none", "cpu", "activations", "opt+param", "gemini policy auto"],
    "note": ["", "64 experts, top-6, 2 shared, expert width 1408", "8 experts"],
    "dist_opt_instances": ["", "2"],
    "first_stage_layers": ["", "2"],
    "loss_counts_as_layer": ["", "1"],
}  # fmt: skip
CELLS = [(column, cell) for column, cells in COLUMNS.items() for cell in cells]
MOST_CHANGED = 8
REASON_LENGTH = 250


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(CELLS), max_size=MOST_CHANGED).map(dict))
def test_any_cells_of_the_schema_give_figures_or_one_reason(cells):
    predicted = predict_row(row(**cells))
    if predicted.prediction is None or predicted.memory is None:
        assert predicted.reason
        assert "\n" not in predicted.reason
        assert len(predicted.reason) <= REASON_LENGTH
        return
    time, memory = predicted.prediction.time, predicted.memory
    assert 0 < time.step < math.inf
    assert 0 < memory.allocated <= (memory.reserved or math.inf) < math.inf
    assert predicted.verdict in ("fits", "tight", "does_not_fit")
    low, high = predicted.memory_interval("reserved") or (0, 0)
    assert 0 < low <= high


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_reads_the_plain_row(framework):
    predicted = predict_row(row(framework=framework, engine_args="", zero_stage="0"))
    known = framework not in ("", "made up")
    assert (predicted.reason is None) == known
