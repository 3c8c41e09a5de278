"""Hugging Face's Trainer and what is built on it: one device, DDP, FSDP, or DeepSpeed where a row
names it or a stage without FSDP.

LoRA trains adapters of rank 8 where none is printed (PEFT's default). ms-swift loads models in 16
bits and trains them so; the others keep fp32 states beside bf16.
"""

from dataclasses import replace

from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import DEEPSPEED_TRAINER, TRAINER
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import NotModelledError, TruthRow


def read(row: TruthRow) -> RowJob:
    """The job of a row.

    Raises:
        NotModelledError: something that is needed is not stated or not known, or layers lie on
            devices that wait for each other.
    """
    if "device_map" in row.text("pp_schedule"):
        raise NotModelledError("not modelled: layers over devices without micro-batches")
    how = _UNDER_DEEPSPEED if _is_under_deepspeed(row) else _CONVENTIONS
    return assemble(row, replace(how, pure_bf16="swift" in row.text("framework").lower()))


def _is_under_deepspeed(row: TruthRow) -> bool:
    words = f"{row.text('framework')} {row.text('note')}".lower()
    is_staged = bool(row.whole("zero_stage")) and "fsdp" not in words
    return "deepspeed" in words or is_staged


_CONVENTIONS = Conventions(profile=TRAINER)
_UNDER_DEEPSPEED = Conventions(profile=DEEPSPEED_TRAINER, gradient_bytes=2)
