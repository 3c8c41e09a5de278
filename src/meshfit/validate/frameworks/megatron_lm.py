"""Megatron-LM as papers and its README report it: GPT, mixed precision, NVIDIA's own clusters."""

import re

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.planner_choice import with_planned_micro_batch
from meshfit.validate.profiles import MEGATRON_CORE, MEGATRON_LM
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.training import RuntimeSpec

GPT2_VOCABULARY = 51200
"""50257 of GPT-2's tokenizer (the scripts' default) padded to 128 x tp 8, as the papers state it."""

FIRST_YEAR_OF_CORE = 2024
"""Megatron-LM's scripts build Megatron-Core's models by default since the end of 2023."""


def read(row: TruthRow) -> RowJob:
    """The job of a row. The table on Megatron-Core does not print micro-batches: the planner chooses.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    is_core = _is_on_core(row)
    how = _ON_CORE if is_core else _CONVENTIONS
    job = assemble(row.completed({"vocab": str(GPT2_VOCABULARY)}), how)
    is_chosen = is_core and row.whole("mbs") is None and row.whole("grad_accum") is None
    return with_planned_micro_batch(job) if is_chosen else job


def _is_on_core(row: TruthRow) -> bool:
    """Whether the scripts were already on Megatron-Core: by their release, else by their year."""
    if row.text("framework_ver").startswith("core"):
        return True
    year = re.search(r"20\d\d", row.text("date"))
    return year is not None and int(year[0]) >= FIRST_YEAR_OF_CORE


_CONVENTIONS = Conventions(
    profile=MEGATRON_LM, runtime=RuntimeSpec(attention_dropout=0.1, hidden_dropout=0.1)
)
_ON_CORE = Conventions(profile=MEGATRON_CORE, defaults=Defaults(experts_follow_tp=True))
