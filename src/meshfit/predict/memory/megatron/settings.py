"""How the layers of a job compute, once its options, its runtime and its accelerator are known."""

from dataclasses import dataclass

from meshfit.predict.memory.megatron.kernels import Kernel, attention_kernel
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.layer_basis import LayerBasis

MAX_FUSED_SOFTMAX_KEYS = 4096
"""Longest row of Megatron-Core's fused softmax (``FusedScaleMaskSoftmax.is_kernel_available``)."""


@dataclass(frozen=True, kw_only=True)
class LayerSettings:
    """What decides which tensors a layer keeps.

    Attributes:
        element_bytes: of an activation.
        linear_input_bytes: of what a linear keeps of its input (1 under fp8).
        norm_statistics: fp32 numbers a norm keeps a token.
        fuses_norms: whether a norm before a linear is part of it (Transformer Engine's
            ``LayerNormLinear``), so that nothing can recompute it alone.
        basis: what blocks that Megatron-Core computes as PyTorch does take.
    """

    element_bytes: int
    linear_input_bytes: int
    kernel: Kernel
    fused_softmax: bool
    softmax_in_fp32: bool
    attention_dropout: bool
    hidden_dropout: bool
    norm_statistics: int
    fuses_norms: bool
    capacity_factor: float
    basis: LayerBasis


def layer_settings(group: LayoutGroup) -> LayerSettings:
    """Derive them from what the group shares."""
    options, precision, basis = group.profile.megatron, group.training.precision, group.layer_basis
    return LayerSettings(
        element_bytes=precision.compute_bytes,
        linear_input_bytes=1 if precision.matmul == "fp8" else precision.compute_bytes,
        kernel=attention_kernel(group),
        fused_softmax=options.fused_softmax
        and (
            options.transformer_engine or group.training.sequence_length <= MAX_FUSED_SOFTMAX_KEYS
        ),
        softmax_in_fp32=options.softmax_in_fp32,
        attention_dropout=basis.attention_dropout > 0,
        hidden_dropout=basis.hidden_dropout > 0,
        norm_statistics=2 if basis.layer_norm else 1,
        fuses_norms=options.transformer_engine,
        capacity_factor=options.expert_capacity_factor or 1.0,
        basis=basis,
    )
