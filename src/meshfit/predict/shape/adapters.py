"""Low-rank adapters: their parameters, and what frozen weights spare.

A frozen linear needs no input for a weight gradient, so only linears with an adapter keep theirs; a
frozen norm's scale needs no normalised values. Everything that the gradient of the hidden states
passes through is kept as without adapters (LoRA, arXiv 2106.09685; QLoRA, 2305.14314).
"""

from collections.abc import Iterable

from meshfit.predict.shape.saved import SavedTensor
from meshfit.workload.blocks.tensor import Tensor
from meshfit.workload.training import AdapterSpec

QUANTISATION_BLOCK = 64
"""Weights that share one fp32 scale in bitsandbytes' 4-bit formats (``blocksize``)."""

_CONSUMERS: dict[str, tuple[str, ...]] = {
    "attention.input": ("q_proj", "k_proj", "v_proj", "q_a_proj", "kv_a_proj_with_mqa", "qkv_proj"),
    "attention.gathered_input": ("q_proj",),
    "attention.out": ("o_proj",),
    "mlp.input": ("gate_proj", "up_proj"),
    "mlp.product": ("down_proj",),
    "mlp.activated": ("down_proj",),
    "mixer.input": ("in_proj",),
    "mixer.gated": ("out_proj",),
    "linear_attention.input": ("in_proj_qkv", "in_proj_z", "q_proj", "k_proj", "v_proj"),
}
"""Saved tensor -> the linears that read it."""

_OPERANDS_ANYWAY = frozenset(("attention.out", "mlp.activated"))
"""Kept without an adapter too: by the attention kernel, and by the product of a gated MLP."""

_LAST_LINEARS = frozenset(("o_proj", "down_proj", "out_proj"))


def has_adapter(linear: str, adapter: AdapterSpec) -> bool:
    """Whether the linear of this name below its block has one; none named means all of them."""
    return not adapter.targets or linear in adapter.targets


def adapter_elements(tensor: Tensor, adapter: AdapterSpec) -> int:
    """Elements of the two factors beside one linear, 0 where it has none: rank x (in + out).

    Experts that are stacked into one tensor are no linears and get none (PEFT).
    """
    *path, linear, kind = ("", "", *tensor.name.split("."))
    if kind != "weight" or tensor.role != "linear" or "experts" in path:
        return 0
    return adapter.rank * sum(tensor.shape) if has_adapter(linear, adapter) else 0


def base_bytes(bits: int | None, element_bytes: int) -> float:
    """Of one frozen weight of a linear as it is stored, its share of a scale included."""
    if bits is None:
        return float(element_bytes)
    return bits / 8 + 4 / QUANTISATION_BLOCK


def kept_beside_adapters(
    tensors: Iterable[SavedTensor], adapter: AdapterSpec
) -> tuple[SavedTensor, ...]:
    """Of what a layer keeps when all weights are trained, what it keeps when they are frozen."""
    return tuple(tensor for tensor in tensors if _is_kept(tensor, adapter))


def low_rank_outputs(
    tensors: Iterable[Tensor], adapter: AdapterSpec, element_bytes: int, *, gathers_latents: bool
) -> tuple[SavedTensor, ...]:
    """What passes between the two factors of each adapter, kept for the gradient of the second: of
    all tokens on every rank beside a linear that tensor parallelism cuts by columns, of a rank's
    share of the sequence beside one cut by rows, whose first factor's summands are added up there,
    and beside a whole one that makes latents, where these are what is gathered."""
    own_tokens = ("row", None) if gathers_latents else ("row",)
    return tuple(
        SavedTensor(
            name=f"{tensor.name}.low_rank",
            bytes_per_token=adapter.rank * element_bytes,
            split="sequence" if tensor.split in own_tokens else "whole",
        )
        for tensor in tensors
        if adapter_elements(tensor, adapter)
    )


def frees_last_input(saved: Iterable[SavedTensor], adapter: AdapterSpec) -> bool:
    """Whether the backward of a block, which keeps ``saved``, begins by freeing the input of its last
    linear: where that one has an adapter. (Stacked experts are no linears, and kept as they are.)"""
    readers = {
        linear
        for tensor in saved
        for linear in _CONSUMERS.get(tensor.name, ())
        if linear in _LAST_LINEARS
    }
    return not readers or any(has_adapter(linear, adapter) for linear in readers)


def _is_kept(tensor: SavedTensor, adapter: AdapterSpec) -> bool:
    if tensor.name.endswith(".normalised"):
        return False
    if tensor.name in _OPERANDS_ANYWAY or tensor.name not in _CONSUMERS:
        return True
    return any(has_adapter(linear, adapter) for linear in _CONSUMERS[tensor.name])
