"""Precision, optimizer, adapters and runtime choices of a row."""

import re
from dataclasses import replace

from meshfit.validate.rows import NotModelledError, TruthRow
from meshfit.workload.training import (
    PRECISIONS,
    AdapterSpec,
    AttentionKernel,
    Fp8Recipe,
    LossKind,
    OptimizerName,
    PrecisionSpec,
    RuntimeSpec,
)

FULL_TASKS: tuple[str, ...] = ("pretrain", "sft", "sft-full")
LOW_RANK_TASKS: tuple[str, ...] = ("lora", "qlora")

_FP8 = ("fp8", "float8")
_FP8_RECIPES: tuple[Fp8Recipe, ...] = ("delayed", "tensorwise", "rowwise", "blockwise", "mxfp8")


def precision_of(row: TruthRow, *, pure: bool = False) -> PrecisionSpec:
    """The numerics that ``precision`` names.

    Args:
        pure: whether the framework's plain ``bf16`` keeps its states in bf16 too.

    Raises:
        NotModelledError: the cell is empty or names none of those known.
    """
    text = row.text("precision").lower()
    if any(word in text for word in _FP8):
        return PRECISIONS["fp8_mixed"]
    if "bf16-true" in text or "pure)" in text:
        return PRECISIONS["bf16"]
    if "bf16" in text:
        return PRECISIONS["bf16" if pure else "bf16_mixed"]
    if "fp16" in text:
        return PRECISIONS["fp16_mixed"]
    if text in ("fp32", "tf32"):
        return PRECISIONS["fp32"]
    raise NotModelledError(f"precision: {text or 'not stated'}")


def optimizer_of(row: TruthRow) -> OptimizerName:
    """The optimizer: Adam with 8-bit moments, Muon, SGD; else AdamW (the default of every
    framework here)."""
    text = row.text("optimizer").lower()
    if "8-bit" in text or "8bit" in text:
        return "adamw_8bit"
    if "muon" in text:
        return "muon"
    return "sgd" if "sgd" in text else "adamw"


def adapter_of(row: TruthRow, *, default_rank: int) -> AdapterSpec | None:
    """Low-rank adapters of the row's task; None where every weight is trained.

    Args:
        default_rank: the framework's, where the note prints none.

    Raises:
        NotModelledError: the task trains something else.
    """
    task = row.text("task").lower()
    if task in FULL_TASKS or not task:
        return None
    if task not in LOW_RANK_TASKS:
        raise NotModelledError(f"method not modelled: {task}")
    rank = re.search(r"lora_r(?:ank)? (\d+)", row.text("note"))
    bits = re.search(r"nf4|int(\d)", row.text("precision"))
    stored = int(bits[1] or 4) if bits else 4 if task == "qlora" else None
    return AdapterSpec(rank=int(rank[1]) if rank else default_rank, base_bits=stored)


def runtime_of(row: TruthRow) -> RuntimeSpec:
    """What the columns say of how the engine was told to compute; None where they are empty."""
    precision = row.text("precision").lower()
    return RuntimeSpec(
        compile=row.flag("compile"),
        attention=_attention_kernel(row),
        loss=_loss(row),
        allocator="expandable" if row.flag("expandable_segments") else "default",
        fp8_recipe=next((name for name in _FP8_RECIPES if name in precision), None),
        fp8_parameters="fp8 all-gather" in precision or bool(row.flag("fp8_param_gather")),
        attention_dropout=row.number("attn_dropout"),
        hidden_dropout=row.number("hidden_dropout"),
        overlap_gradients=_overlap(row, "overlap_grad_reduce", r"overlap-grad-reduce"),
        overlap_parameters=_overlap(row, "overlap_param_gather", r"overlap-param-gather"),
        overlap_tensor_parallel=_tensor_parallel_overlap(row),
        fused_gradient_accumulation=row.flag("grad_accum_fusion"),
        bucket_bytes=_bucket_bytes(row),
        optimizer_in_backward="in backward" in row.text("optimizer"),
        paged_optimizer="paged" in row.text("optimizer"),
    )


def with_defaults(runtime: RuntimeSpec, defaults: RuntimeSpec) -> RuntimeSpec:
    """``runtime`` with what it leaves open (None) taken from ``defaults``."""
    names = (name for name in vars(runtime) if getattr(runtime, name) is None)
    return replace(runtime, **{name: getattr(defaults, name) for name in names})


def _attention_kernel(row: TruthRow) -> AttentionKernel:
    text = row.text("attn").lower()
    if "unfused" in text or text.startswith(("local", "no flash")):
        return "unfused"  # Megatron-Core's local attention has no fused kernel
    if "flash" in text and "v1" in text:
        return "flash1"
    if "flash" in text:
        return "flash"
    return "cudnn" if "cudnn" in text else "auto"


def _loss(row: TruthRow) -> LossKind | None:
    text = row.text("ce_fusion")
    if "chunked" in row.text("flags"):
        return "chunked"
    return None if not text else "plain" if text == "none" else "fused"


def _overlap(row: TruthRow, column: str, option: str) -> bool | None:
    """A column's yes or no, or the option named in the note."""
    stated = row.flag(column)
    return True if stated is None and re.search(option, row.text("note")) else stated


def _tensor_parallel_overlap(row: TruthRow) -> bool | None:
    note = row.text("note").lower()
    if re.search(r"async ?tp|tp[- ]comm[- ]overlap (on|true)", note):
        return True
    return False if "vanilla tp" in note else None


def _bucket_bytes(row: TruthRow) -> int | None:
    """``reduce_bucket_size`` of DeepSpeed counts elements of the gradients' type, 16 bits here."""
    match = re.search(r"reduce_bucket_size ([\d.]+e\d+)", row.text("note"))
    return round(2 * float(match[1])) if match else None
