"""FSDP1 as it is, under composer (llm-foundry) or IBM's fms-fsdp: data parallelism alone, stage 3
or 2.

llm-foundry's MPT takes flash-attention's fused cross entropy by default (``loss_fn``), on logits in
bf16.
"""

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import FMS_FSDP, FSDP1, LLM_FOUNDRY
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.training import RuntimeSpec


def read(row: TruthRow) -> RowJob:
    """The job of a row that names FSDP and no more.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row, _PLAIN)


def read_llm_foundry(row: TruthRow) -> RowJob:
    """The job of a row of llm-foundry's benchmarks.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row, _LLM_FOUNDRY)


def read_fms(row: TruthRow) -> RowJob:
    """The job of a row of fms-fsdp.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row, _FMS)


_PLAIN = Conventions(
    profile=FSDP1, defaults=Defaults(zero_stage=3), runtime=RuntimeSpec(compile=False)
)
_LLM_FOUNDRY = Conventions(
    profile=LLM_FOUNDRY,
    defaults=Defaults(zero_stage=3),
    runtime=RuntimeSpec(compile=False, loss="fused"),
)
_FMS = Conventions(
    profile=FMS_FSDP, defaults=Defaults(zero_stage=3), runtime=RuntimeSpec(compile=True)
)
