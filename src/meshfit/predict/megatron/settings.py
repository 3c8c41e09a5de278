"""How the layers of a job compute, once its options, its runtime and its accelerator are known."""

from dataclasses import dataclass

from meshfit.predict.group import LayoutGroup
from meshfit.predict.layer_basis import LayerBasis
from meshfit.predict.megatron.kernels import Kernel, attention_kernel

MAX_FUSED_SOFTMAX_KEYS = 4096
"""Longest row of Megatron-Core's fused softmax (``FusedScaleMaskSoftmax.is_kernel_available``)."""


@dataclass(frozen=True, kw_only=True)
class LayerSettings:
    """What decides which tensors a layer keeps.

    Attributes:
        element_bytes: of an activation.
        linear_input_bytes: of what a linear keeps of its input (1 under fp8).
        rotates: whether positions are rotations of q and k.
        norm_statistics: fp32 numbers a norm keeps a token.
        fuses_norms: whether a norm before a linear is part of it (Transformer Engine's
            ``LayerNormLinear``), so that nothing can recompute it alone.
        basis: what blocks that Megatron-Core computes as PyTorch does take.
    """

    element_bytes: int
    linear_input_bytes: int
    kernel: Kernel
    rotates: bool
    fused_softmax: bool
    softmax_in_fp32: bool
    attention_dropout: bool
    hidden_dropout: bool
    norm_statistics: int
    fuses_norms: bool
    grouped_experts: bool
    capacity_factor: float
    basis: LayerBasis


def layer_settings(group: LayoutGroup) -> LayerSettings:
    """Derive them from what the group shares."""
    model, runtime = group.model, group.training.runtime
    options, precision = group.profile.megatron, group.training.precision

    def drops(probability: float | None) -> bool:
        return (model.dropout if probability is None else probability) > 0

    return LayerSettings(
        element_bytes=precision.compute_bytes,
        linear_input_bytes=1 if precision.matmul == "fp8" else precision.compute_bytes,
        kernel=attention_kernel(group),
        rotates=not model.learned_positions,
        fused_softmax=options.fused_softmax
        and (
            options.transformer_engine or group.training.sequence_length <= MAX_FUSED_SOFTMAX_KEYS
        ),
        softmax_in_fp32=options.softmax_in_fp32,
        attention_dropout=drops(runtime.attention_dropout),
        hidden_dropout=drops(runtime.hidden_dropout),
        norm_statistics=2 if model.norm == "layer_norm" else 1,
        fuses_norms=options.transformer_engine,
        grouped_experts=options.grouped_experts,
        capacity_factor=options.expert_capacity_factor or 1.0,
        basis=group.layer_basis,
    )
