"""Llama 3.1 405B as published (2407.21783, table 4: TP8, PP16, DP128, sequences of 8192), by hand."""

from dataclasses import replace

import numpy as np
import pytest

from meshfit.engines.megatron.profile import MEGATRON
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec, balanced_stages
from meshfit.predict.memory.megatron.memory import rank_memory
from meshfit.predict.memory.pytorch import RankMemory
from meshfit.predict.shape.columns import step_columns
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.layer_basis import cast
from meshfit.predict.shape.schedule import Pipeline
from meshfit.workload.models import read_model
from meshfit.workload.training import PRECISIONS, TrainingSpec

HIDDEN, WIDTH, HEADS, KV_HEADS, HEAD_DIM = 16_384, 53_248, 128, 8, 128
LENGTH, TP, PP, DP = 8192, 8, 16, 128

LAYER_PARAMETERS = (
    2 * HIDDEN * HEADS * HEAD_DIM + 2 * HIDDEN * KV_HEADS * HEAD_DIM + 3 * HIDDEN * WIDTH
)
PUBLISHED = LayoutSpec(
    tp=TP,
    sp=True,
    pp=PP,
    vpp=8,
    schedule="interleaved_1f1b",
    dp_shard=DP,
    zero_stage=2,
    stage_layers=balanced_stages(126, 128, embedding=1, head=1, bare_ends=True),
)
"""Optimizer and gradients in shards, parameters gathered once; the ends' chunks hold no layer."""


def memory_of(layout: LayoutSpec, rank: int) -> RankMemory:
    model = read_model("llama-3.1-405b")
    training = TrainingSpec(
        sequence_length=LENGTH, global_batch_size=16 * DP, precision=PRECISIONS["bf16_mixed"]
    )
    assert layout.stage_layers is not None
    pipeline = Pipeline(
        pp=layout.pp,
        vpp=layout.vpp,
        schedule=layout.schedule,
        stage_layers=layout.stage_layers,
        model=model,
    )
    candidates = Candidates.from_layouts([layout])
    group = LayoutGroup(
        model=model,
        training=training,
        profile=MEGATRON,
        pipeline=pipeline,
        numerics=cast(training.precision),
        candidates=candidates,
        columns=step_columns(candidates, training, MEGATRON),
    )
    return rank_memory(pipeline.ranks[rank], group)


def layer_bytes_a_token() -> float:
    """Of one layer on one rank, bf16: every tensor once."""
    norms = 2 * (2 * HIDDEN + 2 * HIDDEN + 4) / TP  # input, output and one fp32 statistic, twice
    queries = (2 * HEADS * HEAD_DIM + 2 * 2 * KV_HEADS * HEAD_DIM) / TP  # q, and k with v
    core = (4 * HEADS + 2 * HEADS * HEAD_DIM) / TP  # log-sum-exp, and the output
    mlp = (2 * 2 * WIDTH + 2 * WIDTH) / TP  # gate with up, and what goes down
    return norms + queries + core + mlp


def test_without_recomputation_16_micro_batches_of_8_layers_are_kept() -> None:
    """As many micro-batches as pipeline ranks are all in flight before the first backward, under
    whatever number of virtual stages."""
    kept = memory_of(PUBLISHED, rank=1).categories["activations"][0]
    assert kept == pytest.approx(16 * 8 * LENGTH * layer_bytes_a_token(), rel=1e-3)
    assert kept / 2**30 == pytest.approx(63.6, abs=0.1)


def test_parameters_are_whole_and_the_rest_of_the_states_in_128_shards() -> None:
    categories = memory_of(PUBLISHED, rank=1).categories
    parameters = 8 * LAYER_PARAMETERS / TP
    assert categories["parameters"][0] == pytest.approx(2 * parameters, rel=1e-3)
    assert categories["gradients"][0] == pytest.approx(4 * parameters / DP, rel=1e-3)
    assert categories["optimizer"][0] == pytest.approx(12 * parameters / DP, rel=1e-3)


def test_the_first_rank_holds_seven_layers_and_the_embedding() -> None:
    categories = memory_of(PUBLISHED, rank=0).categories
    parameters = (7 * LAYER_PARAMETERS + 128_256 * HIDDEN) / TP
    assert categories["parameters"][0] == pytest.approx(2 * parameters, rel=1e-3)
    kept = 16 * 7 * LENGTH * layer_bytes_a_token()
    assert categories["activations"][0] == pytest.approx(kept, rel=1e-3)


def test_virtual_stages_move_no_memory_where_all_micro_batches_are_in_flight() -> None:
    two_layers = replace(PUBLISHED, vpp=4, stage_layers=(1, *(2,) * 62, 1))
    ours, theirs = (memory_of(layout, rank=1).allocated[0] for layout in (PUBLISHED, two_layers))
    assert np.isclose(ours, theirs, rtol=0.01)


def test_dense_layers_have_nothing_that_recomputation_by_operation_could_drop() -> None:
    """Their norms are inside Transformer Engine's linears; ``moe_act`` is of experts."""
    less = memory_of(replace(PUBLISHED, recompute="operations"), rank=1).allocated
    assert less == memory_of(PUBLISHED, rank=1).allocated
