"""Megatron's layers under DeepSpeed's engine: BigScience, MT-NLG.

fp16 gradients are kept in 16 bits.
"""

from dataclasses import replace

from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.frameworks.megatron_lm import GPT2_VOCABULARY
from meshfit.validate.profiles import (
    MEGATRON_DEEPSPEED,
    MEGATRON_ZERO3,
    MEGATRON_ZERO3_ON_HOST,
)
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.training import RuntimeSpec


def read(row: TruthRow) -> RowJob:
    """The job of a row.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    row = row.completed({"vocab": str(GPT2_VOCABULARY)})
    if "ZeRO-3" in row.text("framework"):
        on_device = "checkpoint-in-cpu N" in row.text("note")
        profile = MEGATRON_ZERO3 if on_device else MEGATRON_ZERO3_ON_HOST
        return assemble(row, replace(_CONVENTIONS, profile=profile))
    return assemble(row, _CONVENTIONS)


_CONVENTIONS = Conventions(
    profile=MEGATRON_DEEPSPEED,
    gradient_bytes=2,
    runtime=RuntimeSpec(
        attention_dropout=0.1, hidden_dropout=0.1, fused_gradient_accumulation=False
    ),
)
