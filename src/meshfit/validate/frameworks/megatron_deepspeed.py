"""Megatron's layers under DeepSpeed's engine: BigScience, MT-NLG. fp16 gradients are kept in 16 bits."""

from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.frameworks.megatron_lm import GPT2_VOCABULARY
from meshfit.validate.profiles import MEGATRON_DEEPSPEED
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.training import RuntimeSpec


def read(row: TruthRow) -> RowJob:
    """The job of a row.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row.completed({"vocab": str(GPT2_VOCABULARY)}), _CONVENTIONS)


_CONVENTIONS = Conventions(
    profile=MEGATRON_DEEPSPEED,
    gradient_bytes=2,
    runtime=RuntimeSpec(
        attention_dropout=0.1, hidden_dropout=0.1, fused_gradient_accumulation=False
    ),
)
