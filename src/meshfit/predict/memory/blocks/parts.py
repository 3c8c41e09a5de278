"""What a block says of itself to the memory model."""

from dataclasses import dataclass

from meshfit.predict.shape.layer_basis import FP32_BYTES, LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor, Split

NOTHING = BytesPerToken()


@dataclass(frozen=True, kw_only=True)
class BlockMemory:
    """What one block keeps from forward to backward, and what backward makes.

    Attributes:
        saved: kept where nothing is recomputed, the block's input included.
        matmul_outputs: outputs of its matmuls in the order in which they run; one that is among
            ``saved`` has the same name there.
        kernel_outputs: outputs of attention kernels and of exchanges, which recomputation by
            operation never repeats.
        gradients: gradients alive at once while backward passes it, beyond what forward kept.
        last_input: the input of its last matmul, which backward frees first.
    """

    saved: tuple[SavedTensor, ...]
    matmul_outputs: tuple[SavedTensor, ...] = ()
    kernel_outputs: tuple[SavedTensor, ...] = ()
    gradients: BytesPerToken = NOTHING
    last_input: BytesPerToken = NOTHING


def linear_input(name: str, width: int, consumers: int, basis: LayerBasis) -> SavedTensor:
    """The input shared by ``consumers`` column-parallel linears; autocast copies it for each."""
    copies = consumers if basis.numerics.is_autocast else 1
    split: Split = "whole" if basis.gathered_inputs else "sequence"
    return SavedTensor(name=name, bytes_per_token=basis.compute_bytes * width * copies, split=split)


def norm_tensors(name: str, width: int, basis: LayerBasis) -> tuple[SavedTensor, ...]:
    """A norm of the residual stream, without its output (which the next operation keeps)."""
    element = basis.residual_bytes
    if basis.layer_norm:
        return _of_one_kernel(name, element * width, 2 * element, "sequence")
    return _rms_norm(name, width, basis, element=element, statistic=element, split="sequence")


def inner_norm_tensors(
    name: str, width: int, basis: LayerBasis, *, groups: int = 1, split: Split = "tp"
) -> tuple[SavedTensor, ...]:
    """An RMS norm inside a block, on what a matmul has made in the compute type.

    Args:
        width: elements a token.
        groups: parts of it that are normalised apart (heads).
    """
    element = basis.compute_bytes
    return _rms_norm(
        name, width, basis, element=element, statistic=FP32_BYTES, groups=groups, split=split
    )


def _rms_norm(
    name: str,
    width: int,
    basis: LayerBasis,
    *,
    element: int,
    statistic: int,
    split: Split,
    groups: int = 1,
) -> tuple[SavedTensor, ...]:
    """Hugging Face's computes in fp32 by hand: it keeps its input in fp32 (in fp32 that is the tensor
    itself), one 1/rms a token, and the normalised values. A fused one keeps its input and the 1/rms,
    ``statistic`` bytes each."""
    if basis.norm_kernel == "fused":
        return _of_one_kernel(name, element * width, statistic * groups, split)
    normalised = FP32_BYTES if basis.norm_kernel == "fp32" else element
    return (
        SavedTensor(name=f"{name}.input_fp32", bytes_per_token=FP32_BYTES * width, split=split),
        SavedTensor(name=f"{name}.inverse_rms", bytes_per_token=FP32_BYTES * groups, split=split),
        SavedTensor(name=f"{name}.normalised", bytes_per_token=normalised * width, split=split),
    )


def _of_one_kernel(
    name: str, input_bytes: int, statistics_bytes: int, split: Split
) -> tuple[SavedTensor, ...]:
    return (
        SavedTensor(name=f"{name}.input", bytes_per_token=input_bytes, split=split),
        SavedTensor(name=f"{name}.statistics", bytes_per_token=statistics_bytes, split=split),
    )
