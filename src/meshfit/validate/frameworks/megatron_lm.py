"""Megatron-LM as papers and its README report it: GPT, mixed precision, NVIDIA's own clusters."""

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.planner_choice import with_planned_micro_batch
from meshfit.validate.profiles import MEGATRON_CORE, MEGATRON_LM
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.training import RuntimeSpec

GPT2_VOCABULARY = 51200
"""50257 of GPT-2's tokenizer (the scripts' default) padded to 128 x tp 8, as the papers state it."""


def read(row: TruthRow) -> RowJob:
    """The job of a row. The table on Megatron-Core does not print micro-batches: the planner chooses.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    is_core = row.text("framework_ver").startswith("core")
    how = _ON_CORE if is_core else _CONVENTIONS
    job = assemble(row.completed({"vocab": str(GPT2_VOCABULARY)}), how)
    is_chosen = is_core and row.whole("mbs") is None and row.whole("grad_accum") is None
    return with_planned_micro_batch(job) if is_chosen else job


_CONVENTIONS = Conventions(
    profile=MEGATRON_LM, runtime=RuntimeSpec(attention_dropout=0.1, hidden_dropout=0.1)
)
_ON_CORE = Conventions(profile=MEGATRON_CORE, defaults=Defaults(experts_follow_tp=True))
