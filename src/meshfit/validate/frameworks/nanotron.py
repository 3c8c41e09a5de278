"""nanotron and picotron: Megatron's tensor and pipeline parallelism in PyTorch, bf16 with fp32
gradients, collectives of a layer not overlapped."""

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import NANOTRON
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.training import RuntimeSpec


def read(row: TruthRow) -> RowJob:
    """The job of a row.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row, _CONVENTIONS)


_CONVENTIONS = Conventions(
    profile=NANOTRON,
    defaults=Defaults(zero_stage=1),
    runtime=RuntimeSpec(attention="flash", fused_gradient_accumulation=False),
)
