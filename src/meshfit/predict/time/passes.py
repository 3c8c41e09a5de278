"""Bytes that elementwise kernels of a layer move: norms, residuals, rotations, activations, casts.

Counted per kernel as tensors read and written. ``fused``: one kernel for what belongs together
(Transformer Engine, Apex, ``torch.compile``); else each PyTorch operation is its own.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.context import context_method
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.time.work import LayerWork, SoftmaxMixing
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]

UNFUSED_RMS_NORM_BYTES = (36.0, 68.0)
"""An element's bytes forward and backward when PyTorch computes an RMS norm operation by operation
in fp32: cast, square, mean, scale, cast, weight; read and written each time."""
UNFUSED_ROTATION_BYTES = 20.0
"""An element's bytes of a rotation in fp32 complex numbers, cast there and back."""
LOSS_BYTES = {"plain": (22.0, 22.0), "fused": (8.0, 6.0), "chunked": (22.0, 22.0)}
"""An fp32 logit's bytes forward and backward. Plain: cast, log-softmax and its gradient, cast back;
fused: the 16-bit logits read twice, their gradient written over them."""
RING_BYTES = {"pytorch": (38.0, 4.0, 10.0, 25.0), "megatron": (6.0, 0.0, 6.0, 6.0)}
"""What each further part of attention in a ring costs beside its kernel, in bytes an element: of the
output and of keys and values forward, of queries and of keys and values backward. PyTorch merges in
fp32 operation by operation, joins keys and values to send them, and adds their gradients to fp32 ones
by copies (2.13, ``_context_parallel/_attention.py``: ``_SDPAMerger``, ``_partial_update``);
Transformer Engine scales and adds in one kernel (2.20, ``context_parallel.py``). Of the rank all of
whose queries attend to every part."""
FP8_CAST_BYTES = {
    "delayed": (1.0, 3.0),
    "tensorwise": (3.0, 5.0),
    "rowwise": (5.0, 7.0),
    "blockwise": (3.0, 5.0),
    "mxfp8": (2.0, 4.0),
}
"""An element's bytes of casting matmuls' 16-bit operands to fp8, as they lie and transposed: inputs
forward, gradients of outputs backward. With delayed scales the norm before writes fp8 (Transformer
Engine); scales of the present tensor read it once more, of rows twice."""
UNFUSED_CAST_BYTES = 3.0
"""What delayed scales cost beyond that where no norm of Transformer Engine comes before: attention's
output and the activation (Megatron-Core computes it outside, ``transformer/mlp.py``) are read in 16
bits and written in 8, in the kernel that transposes them."""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Bytes moved by elementwise kernels for one micro-batch on one rank."""

    forward: FloatArray
    backward: FloatArray


def is_fused(group: LayoutGroup) -> bool:
    """Whether elementwise chains are single kernels: by the engine, or by the compiler."""
    compiled = group.training.runtime.compile
    return group.profile.fused_layers or bool(compiled)


def layer_passes(layer: LayerSpec, work: LayerWork, group: LayoutGroup) -> Passes:
    """Of one layer."""
    columns, fused = group.columns, is_fused(group)
    between = columns.tokens / columns.sequence_split
    inside = columns.tokens / columns.tp
    forward = np.zeros(len(group))
    backward = np.zeros(len(group))
    for on_rank, (one_way, other_way) in (
        (between * group.model.hidden_size, _between_blocks(layer, group, fused)),
        (inside, _rotation(work, group, fused)),
        (inside, _activations(work, group, fused)),
        (inside * _further_parts(group), _merging(work, group)),
        (routed_tokens(work, group) * group.model.hidden_size, _permutation(work, group)),
    ):
        forward = forward + on_rank * one_way
        backward = backward + on_rank * other_way
    return Passes(forward=forward, backward=backward)


def _between_blocks(layer: LayerSpec, group: LayoutGroup, fused: bool) -> tuple[float, float]:
    """An element of the residual stream: its norms, its sums, its dropouts.

    A norm reads it and writes a matmul's operand; backward reads the gradient and the input and
    writes the gradient. A sum reads two and writes one, in both directions.
    """
    element, residual = group.numerics.compute_bytes, group.numerics.residual_bytes
    norm = (float(residual + element), float(element + 2 * residual))
    by_operation = group.profile.norm_kernel != "fused" and not fused
    if group.model.norm == "rms_norm" and by_operation:
        norm = UNFUSED_RMS_NORM_BYTES
    sums = 3.0 * residual
    has_dropout = group.layer_basis.hidden_dropout > 0
    dropout = (2.0 * residual if not fused else 0.0) + 1.0 if has_dropout else 0.0
    blocks, norms = len(layer.blocks), len(layer.norms)
    return (
        norms * norm[0] + blocks * (sums + dropout),
        norms * norm[1] + blocks * (sums + dropout),
    )


def _rotation(work: LayerWork, group: LayoutGroup, fused: bool) -> tuple[float, float]:
    """Elements of queries and keys that rotary positions pass over, each way."""
    if group.model.learned_positions:
        return 0.0, 0.0
    each = 2.0 * group.numerics.compute_bytes if fused else UNFUSED_ROTATION_BYTES
    widths = sum(
        mixing.query_width + mixing.key_width
        for mixing in work.mixings
        if isinstance(mixing, SoftmaxMixing)
    )
    return widths * each, widths * each


def _further_parts(group: LayoutGroup) -> FloatArray:
    """Of attention in a ring, beyond the rank's own keys."""
    rings = context_method(group)["send_recv"]
    return np.where(rings, group.columns.key_ranks - 1.0, 0.0)


def _merging(work: LayerWork, group: LayoutGroup) -> tuple[float, float]:
    """Bytes a token of joining attention's parts, each way."""
    out, keys, d_query, d_keys = RING_BYTES[group.profile.kernels]
    forward = backward = 0.0
    for mixing in work.mixings:
        if isinstance(mixing, SoftmaxMixing):
            both = mixing.num_key_value_heads * (mixing.head_dim + mixing.value_dim)
            forward += out * mixing.num_heads * mixing.value_dim + keys * both
            backward += d_query * mixing.query_width + d_keys * both
    return forward, backward


def _activations(work: LayerWork, group: LayoutGroup, fused: bool) -> tuple[float, float]:
    """Bytes a token: gated ones read two tensors and write one, and in backward read three and
    write two; unfused the product and the nonlinearity are two kernels."""
    element = float(group.numerics.compute_bytes)
    forward = backward = 0.0
    for width, gated, used in work.activations:
        one_way, other_way = (2.0, 3.0) if not gated else (3.0, 5.0) if fused else (5.0, 8.0)
        forward += used * width * one_way * element
        backward += used * width * other_way * element
    return forward, backward


def routed_tokens(work: LayerWork, group: LayoutGroup) -> FloatArray:
    """Copies of tokens that one rank computes for its experts, all layers' blocks together."""
    used = sum(block.experts_per_token for block in work.routed)
    columns = group.columns
    return columns.tokens * used * experts_tp(group) / columns.tp


def experts_tp(group: LayoutGroup) -> FloatArray:
    """Ranks that one expert is cut over: ``etp`` beside expert parallelism, else as an MLP is."""
    candidates = group.candidates
    return np.where(candidates.ep > 1, np.minimum(candidates.etp, candidates.tp), candidates.tp)


def _permutation(work: LayerWork, group: LayoutGroup) -> tuple[float, float]:
    """Routed copies are gathered into the experts' order and summed back: read and written twice."""
    each = 4.0 * group.numerics.compute_bytes if work.routed else 0.0
    return each, each


@dataclass(frozen=True, kw_only=True)
class CastBytes:
    """Bytes an element of a matmul's operands costs to be made fp8.

    Attributes:
        input_of_column, input_of_row: forward, of linears behind a norm and behind anything else.
        gradient: of outputs, backward.
    """

    input_of_column: float
    input_of_row: float
    gradient: float


def cast_bytes(group: LayoutGroup) -> CastBytes | None:
    """Those of the job's recipe; None where matmuls are not in fp8."""
    if group.training.precision.matmul != "fp8":
        return None
    recipe = group.training.runtime.fp8_recipe or "delayed"
    forward, backward = FP8_CAST_BYTES[recipe]
    unfused = UNFUSED_CAST_BYTES if recipe == "delayed" else 0.0
    return CastBytes(input_of_column=forward, input_of_row=forward + unfused, gradient=backward)
