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
    if job.training.precision.matmul != "fp8":
        return job
    runtime = replace(job.training.runtime, fp8_parameters=True)
    return replace(job, training=replace(job.training, runtime=runtime))


_CONVENTIONS = Conventions(
    profile=NEMO,
    defaults=Defaults(recompute="selective", zero_stage=1),
    runtime=RuntimeSpec(
        overlap_gradients=True, overlap_parameters=True, overlap_tensor_parallel=True
    ),
    adapter_rank=16,
)
