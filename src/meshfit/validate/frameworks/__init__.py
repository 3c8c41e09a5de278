"""Frameworks that rows name: one reader a convention, found by the words of the name."""

from collections.abc import Callable

from meshfit.validate.frameworks import (
    colossalai,
    finetuning,
    fsdp1,
    hugging_face,
    internevo,
    megatron_core,
    megatron_deepspeed,
    megatron_lm,
    nanotron,
    nemo,
    torchtitan,
    xla,
)
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import NotModelledError, TruthRow

Reader = Callable[[TruthRow], RowJob]

READERS: tuple[tuple[str, Reader], ...] = (
    ("torchtitan", torchtitan.read),
    ("megatron-core", megatron_core.read),
    ("megatron-deepspeed", megatron_deepspeed.read),
    ("megatron + deepspeed", megatron_deepspeed.read),
    ("gpt-neox", megatron_deepspeed.read),
    ("megatron-bridge", nemo.read),
    ("megatron", megatron_lm.read),
    ("megablocks", megatron_lm.read),
    ("mindspeed", megatron_lm.read),
    ("primus", megatron_lm.read),
    ("nemo", nemo.read),
    ("torchao", torchtitan.read),
    ("llm-foundry", fsdp1.read_llm_foundry),
    ("composer", fsdp1.read_llm_foundry),
    ("fms-fsdp", fsdp1.read_fms),
    ("olmo", fsdp1.read),
    ("internevo", internevo.read),
    ("nanotron", nanotron.read),
    ("picotron", nanotron.read),
    ("torchtune", finetuning.read_torchtune),
    ("litgpt", finetuning.read_litgpt),
    ("lit-gpt", finetuning.read_litgpt),
    ("lightning", finetuning.read_litgpt),
    ("colossal", colossalai.read),
    ("swift", hugging_face.read),
    ("accelerate", hugging_face.read),
    ("axolotl", hugging_face.read),
    ("deepspeed", hugging_face.read),
    ("hf trainer", hugging_face.read),
    ("hugging", hugging_face.read),
    ("llama-factory", hugging_face.read),
    ("llamafactory", hugging_face.read),
    ("peft", hugging_face.read),
    ("transformers", hugging_face.read),
    ("trl", hugging_face.read),
    ("unsloth", hugging_face.read),
    ("xtuner", hugging_face.read),
    ("axlearn", xla.read),
    ("easylm", xla.read),
    ("levanter", xla.read),
    ("maxtext", xla.read),
    ("paxml", xla.read),
    ("t5x", xla.read),
    ("fsdp2", torchtitan.read),
    ("fsdp", fsdp1.read),
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
