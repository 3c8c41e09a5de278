"""Which kernels a run uses where its options leave the choice to the libraries, and their
workspaces."""

from typing import Literal

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.layer_basis import FP32_BYTES

Kernel = Literal["flash", "cudnn", "unfused"]

MIB = 2**20
WORKSPACE_BYTES = 32 * MIB
"""cuBLAS's workspace of one handle: under ``CUBLAS_WORKSPACE_CONFIG=:4096:8``, which deterministic
mode sets, and by default from Hopper on. Transformer Engine takes as much from Hopper on."""

SMALL_WORKSPACE_BYTES = 8 * MIB + MIB // 8
"""The default before Hopper, ``:4096:2:16:8``."""

SMALL_ENGINE_WORKSPACE_BYTES = 4 * MIB
"""Transformer Engine's before Hopper (``get_cublas_workspace_size_bytes``)."""

OVERLAP_STREAMS = 3
"""Workspaces of Transformer Engine's matmuls that overlap tensor-parallel communication."""

GROUPED_STREAMS = 4
"""Those of its grouped matmul."""

BLAS_HANDLES = 2
"""One of the forward's thread and one of autograd's."""

_BEFORE_HOPPER = ("V100", "T4", "A10", "A30", "A40", "A100", "A800", "RTX-A", "RTX3", "RTX4", "L4")
_WITHOUT_FLASH = ("V100", "T4")


def is_before_hopper(accelerator: AcceleratorSpec | None) -> bool:
    """Whether its compute capability is below 9."""
    return accelerator is not None and accelerator.name.startswith(_BEFORE_HOPPER)


def attention_kernel(group: LayoutGroup) -> Kernel:
    """The kernel of softmax attention: the one asked for, else the libraries' own choice.

    Megatron-Core's own layers compute it unfused. Transformer Engine prefers cuDNN's fused kernel
    from Hopper on and FlashAttention 2 before (``get_attention_backend``).
    """
    asked, accelerator = group.training.runtime.attention, group.accelerator
    has_none = accelerator is not None and accelerator.name.startswith(_WITHOUT_FLASH)
    if has_none or group.training.precision.compute_bytes == FP32_BYTES or asked == "unfused":
        return "unfused"
    if asked != "auto":
        return "cudnn" if asked == "cudnn" else "flash"
    if not group.profile.megatron.transformer_engine:
        return "unfused"
    return "flash" if is_before_hopper(accelerator) else "cudnn"


def workspace_bytes(group: LayoutGroup, *, has_experts: bool) -> int:
    """cuBLAS workspaces that PyTorch and Transformer Engine hold as tensors."""
    options, is_small = group.profile.megatron, is_before_hopper(group.accelerator)
    of_torch = SMALL_WORKSPACE_BYTES if is_small and not options.deterministic else WORKSPACE_BYTES
    if not options.transformer_engine:
        return BLAS_HANDLES * of_torch
    of_engine = SMALL_ENGINE_WORKSPACE_BYTES if is_small else WORKSPACE_BYTES
    streams = 1
    if group.training.runtime.overlap_tensor_parallel:
        streams += OVERLAP_STREAMS
    if options.grouped_experts and has_experts:
        streams += GROUPED_STREAMS
    return BLAS_HANDLES * of_torch + streams * of_engine
