"""Frameworks that rows name: one reader a convention, found by the words of the name."""

from collections.abc import Callable

from meshfit.validate.frameworks import (
    deepspeed,
    finetuning,
    fsdp1,
    internevo,
    megatron_core,
    megatron_deepspeed,
    megatron_lm,
    nemo,
    torchtitan,
    xla,
)
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import NotModelledError, TruthRow

Reader = Callable[[TruthRow], RowJob]

READERS: tuple[tuple[str, Reader], ...] = (
    ("megatron-core", megatron_core.read),
    ("megatron-deepspeed", megatron_deepspeed.read),
    ("megatron + deepspeed", megatron_deepspeed.read),
    ("megatron-bridge", nemo.read),
    ("megatron", megatron_lm.read),
    ("nemo", nemo.read),
    ("torchtitan", torchtitan.read),
    ("llm-foundry", fsdp1.read_llm_foundry),
    ("fms-fsdp", fsdp1.read_fms),
    ("internevo", internevo.read),
    ("torchtune", finetuning.read_torchtune),
    ("litgpt", finetuning.read_litgpt),
    ("deepspeed", deepspeed.read),
    ("maxtext", xla.read),
    ("paxml", xla.read),
)
"""Words of a framework's name in lower case -> its reader, the first that is met."""


def read_job(row: TruthRow) -> RowJob:
    """The job that a row ran.

    Raises:
        NotModelledError: its framework is not known, or something that is needed is not stated.
    """
    name = row.text("framework")
    reader = next((read for words, read in READERS if words in name.lower()), None)
    if reader is None:
        raise NotModelledError(f"not modelled: {name or 'no framework stated'}")
    return reader(row)
