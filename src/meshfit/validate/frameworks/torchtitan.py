"""torchtitan, with torchao's float8: FSDP2, TP with sequence parallelism, pipelines of torch.

``mbs`` is the local batch: a pipeline cuts it into micro-batches, as many as it has ranks where the
row does not say (its default). Shards count context-parallel ranks too. Losses are over fp32 logits
of the whole micro-batch, recomputation in the default config is by operation.
"""

from dataclasses import replace

from meshfit.mesh.spec import LayoutSpec
from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import TORCHTITAN
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.training import RuntimeSpec


def read(row: TruthRow) -> RowJob:
    """The job of a row.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    job = assemble(row, _CONVENTIONS)
    if job.layout.pp == 1:
        return job
    layout = _cut_local_batch(job.layout)
    said = f"micro-batches: of {layout.micro_batch_size}, one a pipeline rank"
    return replace(job, layout=layout, assumed=(said, *job.assumed))


def _cut_local_batch(layout: LayoutSpec) -> LayoutSpec:
    """One micro-batch for each pipeline rank."""
    return replace(layout, micro_batch_size=max(1, layout.micro_batch_size // layout.pp))


_CONVENTIONS = Conventions(
    profile=TORCHTITAN,
    defaults=Defaults(recompute="operations", zero_stage=3),
    runtime=RuntimeSpec(compile=False, overlap_tensor_parallel=False),
)
