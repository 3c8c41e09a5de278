"""NVIDIA NeMo performance recipes: Megatron-Core with its overlaps on.

Recompute is never stated and taken as selective, core attention (SCHEMA.md); the tables are of
runs with overlapped gradients, parameters and tensor-parallel collectives, as the recipes set them;
fp8 recipes gather parameters in fp8.
Pipelines are interleaved in all of them; where the depth is not stated, one layer a virtual stage,
as most have.
"""

from dataclasses import replace

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.numerics import with_defaults
from meshfit.validate.profiles import NEMO
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.training import RuntimeSpec


def read(row: TruthRow) -> RowJob:
    """The job of a row.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    layers, ranks = row.whole("n_layers") or 0, row.whole("pp") or 1
    if ranks > 1 and layers % ranks == 0:
        row = row.completed({"vpp": str(layers // ranks)})
    job = assemble(row, _CONVENTIONS)
    runtime = job.training.runtime
    if job.model.learned_positions:
        runtime = with_defaults(runtime, _OF_GPT)
    if job.training.precision.matmul == "fp8":
        runtime = replace(runtime, fp8_parameters=True)
    return replace(job, training=replace(job.training, runtime=runtime))


_OF_GPT = RuntimeSpec(attention_dropout=0.1, hidden_dropout=0.1)
"""Megatron's defaults, which the recipes of GPT leave and those of Llama and Nemotron set to 0."""

_CONVENTIONS = Conventions(
    profile=NEMO,
    defaults=Defaults(recompute="selective", zero_stage=1, experts_follow_tp=True),
    runtime=RuntimeSpec(
        overlap_gradients=True, overlap_parameters=True, overlap_tensor_parallel=True
    ),
    adapter_rank=16,
)
