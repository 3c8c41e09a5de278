"""Fine-tuning recipes: torchtune and LitGPT, on one device or over FSDP. Both keep pure bf16."""

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import LITGPT, TORCHTUNE
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow


def read_torchtune(row: TruthRow) -> RowJob:
    """The job of a torchtune recipe; activation checkpointing is on in its default configs.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row, _TORCHTUNE)


def read_litgpt(row: TruthRow) -> RowJob:
    """The job of a LitGPT finetuning script; no checkpointing on one device.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row, _LITGPT)


_TORCHTUNE = Conventions(
    profile=TORCHTUNE,
    defaults=Defaults(recompute="full", zero_stage=3),
    pure_bf16=True,
    adapter_rank=8,
)
_LITGPT = Conventions(profile=LITGPT, pure_bf16=True, adapter_rank=8)
