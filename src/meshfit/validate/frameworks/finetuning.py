"""Fine-tuning recipes: torchtune and LitGPT, on one device or over FSDP. Both keep pure bf16."""

from dataclasses import replace

from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import LITGPT, TORCHTUNE
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import TruthRow
from meshfit.workload.training import RuntimeSpec


def read_torchtune(row: TruthRow) -> RowJob:
    """The job of a torchtune recipe, with what its default configs set where the row does not say.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    is_full, on_one = row.text("task") == "sft-full", row.whole("n_gpus") == 1
    if is_full and on_one and row.text("model").endswith("8b"):
        row = row.completed({"optimizer": _OPTIMIZER_OF_8B_ON_ONE_DEVICE})
    return assemble(row, _TORCHTUNE_BEFORE_CHUNKS if _is_before_chunks(row) else _TORCHTUNE)


def _is_before_chunks(row: TruthRow) -> bool:
    """Of the table that adds techniques one by one, the rows above the loss in chunks."""
    return row.text("source_loc").lstrip("+ ").lower() in ("baseline", "packed", "compile")


def read_litgpt(row: TruthRow) -> RowJob:
    """The job of a LitGPT finetuning script; no checkpointing on one device.

    Raises:
        NotModelledError: something that is needed is not stated or not known.
    """
    return assemble(row, _LITGPT)


_OPTIMIZER_OF_8B_ON_ONE_DEVICE = "paged 8-bit AdamW in backward"
"""``recipes/configs/llama3_1/8B_full_single_device.yaml``: PagedAdamW8bit, optimizer_in_bwd."""

_TORCHTUNE = Conventions(
    profile=TORCHTUNE,
    defaults=Defaults(recompute="full", zero_stage=3),
    runtime=RuntimeSpec(loss="chunked"),
    pure_bf16=True,
    adapter_rank=8,
)
"""Default configs checkpoint activations, and take ``CEWithChunkedOutputLoss`` since 0.3."""

_TORCHTUNE_BEFORE_CHUNKS = replace(_TORCHTUNE, runtime=RuntimeSpec(loss="plain"))
_LITGPT = Conventions(profile=LITGPT, pure_bf16=True, adapter_rank=8)
