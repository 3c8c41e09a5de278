"""What autograd keeps of one forward, tensor by tensor, in bytes per token.

Two ways of computing in bf16 keep different things. *Cast*: parameters are cast once (FSDP2's
``MixedPrecisionPolicy``), and everything between the operators is bf16. *Autocast*
(``torch.autocast``): parameters and the residual stream stay fp32, and each matmul makes a bf16
copy of its own input and weight. In fp32 the two are the same.

The lists were checked against ``torch.autograd.graph.saved_tensors_hooks`` on the Hugging Face
models themselves (transformers 5.24, torch 2.13): see ``tests/predict/test_activations.py``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.columns import StepColumns
from meshfit.profile import EngineProfile
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from meshfit.workload.training import PrecisionSpec

FloatArray = NDArray[np.float64]
Split = Literal["tp", "sequence", "whole"]

FP32_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Numerics:
    """Bytes of an element on the residual stream, and of a matmul's operands."""

    residual_bytes: int
    compute_bytes: int

    @property
    def is_autocast(self) -> bool:
        return self.residual_bytes != self.compute_bytes


def cast(precision: PrecisionSpec) -> Numerics:
    """Everything in the compute type."""
    return Numerics(residual_bytes=precision.compute_bytes, compute_bytes=precision.compute_bytes)


def autocast(precision: PrecisionSpec) -> Numerics:
    """Matmuls in the compute type, the rest in that of the parameters."""
    return Numerics(residual_bytes=precision.parameter_bytes, compute_bytes=precision.compute_bytes)


@dataclass(frozen=True, kw_only=True)
class SavedTensor:
    """One tensor kept for backward, and what divides it: tp, sp, or nothing."""

    name: str
    bytes_per_token: float
    split: Split


@dataclass(frozen=True, kw_only=True)
class BytesPerToken:
    """Sums of such tensors by what divides them."""

    tp: float = 0.0
    sequence: float = 0.0
    whole: float = 0.0

    def __add__(self, other: "BytesPerToken") -> "BytesPerToken":
        return BytesPerToken(
            tp=self.tp + other.tp,
            sequence=self.sequence + other.sequence,
            whole=self.whole + other.whole,
        )

    def __mul__(self, factor: float) -> "BytesPerToken":
        return BytesPerToken(
            tp=self.tp * factor, sequence=self.sequence * factor, whole=self.whole * factor
        )

    def on_rank(self, columns: StepColumns) -> FloatArray:
        """Bytes of one micro-batch on one rank of every layout."""
        per_token = self.tp / columns.tp + self.sequence / columns.sequence_split + self.whole
        return np.asarray(columns.tokens * per_token)


def total(tensors: Iterable[SavedTensor]) -> BytesPerToken:
    """Add tensors up by what divides them."""
    sums = {"tp": 0.0, "sequence": 0.0, "whole": 0.0}
    for tensor in tensors:
        sums[tensor.split] += tensor.bytes_per_token
    return BytesPerToken(**sums)


def layer_tensors(
    layer: LayerSpec, model: ModelSpec, numerics: Numerics, profile: EngineProfile
) -> tuple[SavedTensor, ...]:
    """What one layer keeps without recomputation."""
    return (
        *_norm("input_norm", model, numerics, profile),
        *_attention(layer.attention, model, numerics, profile),
        *_norm("mlp_norm", model, numerics, profile),
        *_mlp(layer.mlp, model, numerics, profile),
    )


def checkpoint_tensors(model: ModelSpec, numerics: Numerics) -> tuple[SavedTensor, ...]:
    """What one layer keeps when all of it is recomputed: its input."""
    return (SavedTensor(name="layer.input", bytes_per_token=numerics.residual_bytes * model.hidden_size, split="sequence"),)  # fmt: skip


def head_tensors(
    model: ModelSpec, numerics: Numerics, profile: EngineProfile
) -> tuple[SavedTensor, ...]:
    """What the final norm and the output projection keep, without logits."""
    return (
        *_norm("final_norm", model, numerics, profile),
        _linear_input("head.input", model.hidden_size, 1, numerics, profile),
    )


def _norm(
    name: str, model: ModelSpec, numerics: Numerics, profile: EngineProfile
) -> tuple[SavedTensor, ...]:
    """A norm on the residual stream, without its output (which the next linear keeps).

    Hugging Face's RMS norm computes in fp32 by hand: it keeps its input in fp32 (in fp32 that is
    the residual stream itself), one 1/rms a token, and the normalised values. A fused norm keeps
    its input and one or two statistics.
    """
    hidden = model.hidden_size
    if model.norm == "layer_norm" or profile.fused_norms:
        statistics = 2 if model.norm == "layer_norm" else 1
        return (
            SavedTensor(name=f"{name}.input", bytes_per_token=numerics.residual_bytes * hidden, split="sequence"),
            SavedTensor(name=f"{name}.statistics", bytes_per_token=numerics.residual_bytes * statistics, split="sequence"),
        )  # fmt: skip
    return (
        SavedTensor(name=f"{name}.input_fp32", bytes_per_token=FP32_BYTES * hidden, split="sequence"),
        SavedTensor(name=f"{name}.inverse_rms", bytes_per_token=FP32_BYTES, split="sequence"),
        SavedTensor(name=f"{name}.normalised", bytes_per_token=numerics.residual_bytes * hidden, split="sequence"),
    )  # fmt: skip


def _linear_input(
    name: str, width: int, consumers: int, numerics: Numerics, profile: EngineProfile
) -> SavedTensor:
    """The input shared by ``consumers`` column-parallel linears; autocast copies it for each."""
    copies = consumers if numerics.is_autocast else 1
    split: Split = "whole" if profile.saves_gathered_inputs else "sequence"
    return SavedTensor(
        name=name, bytes_per_token=numerics.compute_bytes * width * copies, split=split
    )


def _attention(
    attention: AttentionSpec, model: ModelSpec, numerics: Numerics, profile: EngineProfile
) -> tuple[SavedTensor, ...]:
    """A flash kernel: q, k, v, its output (the input of the output projection) and log-sum-exp."""
    element = numerics.compute_bytes
    query = attention.num_attention_heads * attention.head_dim
    key = attention.num_key_value_heads * attention.head_dim
    consumers = 1 if model.norm == "layer_norm" else 3
    tensors = [
        _linear_input("attention.input", model.hidden_size, consumers, numerics, profile),
        SavedTensor(name="attention.q", bytes_per_token=element * query, split="tp"),
        SavedTensor(name="attention.k", bytes_per_token=element * key, split="tp"),
        SavedTensor(name="attention.v", bytes_per_token=element * key, split="tp"),
        SavedTensor(name="attention.out", bytes_per_token=element * query, split="tp"),
        SavedTensor(name="attention.log_sum_exp", bytes_per_token=FP32_BYTES * attention.num_attention_heads, split="tp"),
    ]  # fmt: skip
    if attention.qk_norm:
        heads = attention.num_attention_heads + attention.num_key_value_heads
        tensors += [
            SavedTensor(name="attention.qk_norm_input_fp32", bytes_per_token=FP32_BYTES * (query + key), split="tp"),
            SavedTensor(name="attention.qk_norm_inverse_rms", bytes_per_token=FP32_BYTES * heads, split="tp"),
            SavedTensor(name="attention.qk_normalised", bytes_per_token=element * (query + key), split="tp"),
        ]  # fmt: skip
    return tuple(tensors)


def _mlp(
    mlp: MlpSpec, model: ModelSpec, numerics: Numerics, profile: EngineProfile
) -> tuple[SavedTensor, ...]:
    """Gated: gate, activated gate, up and their product. Plain: the five of ``gelu_new`` (input,
    half of it, tanh, one plus tanh, output), or input and output of a fused activation."""
    element = numerics.compute_bytes
    names: tuple[str, ...]
    if mlp.gated:
        names, consumers = ("gate", "activated", "up", "product"), 2
    elif profile.fused_activations:
        names, consumers = ("up", "activated"), 1
    else:
        names, consumers = ("up", "half", "tanh", "one_plus_tanh", "activated"), 1
    return (
        _linear_input("mlp.input", model.hidden_size, consumers, numerics, profile),
        *(
            SavedTensor(name=f"mlp.{name}", bytes_per_token=element * mlp.intermediate_size, split="tp")
            for name in names
        ),
    )  # fmt: skip


def backward_bytes(layer: LayerSpec, model: ModelSpec, numerics: Numerics) -> BytesPerToken:
    """The gradients alive at once while backward passes one layer, beyond what forward kept.

    The residual stream's gradient lives throughout; beside it the largest of: the MLP (gradients of
    product, activated gate and up), attention (gradients of q, k, v and of its output), and an
    eager norm's fp32 chain (three tensors of the hidden size).
    """
    hidden = model.hidden_size
    attention, mlp = layer.attention, layer.mlp
    element = numerics.compute_bytes
    query = attention.num_attention_heads * attention.head_dim
    key = attention.num_key_value_heads * attention.head_dim
    in_mlp = BytesPerToken(tp=element * mlp.intermediate_size * (3 if mlp.gated else 4))
    in_attention = BytesPerToken(tp=element * (2 * query + 2 * key))
    in_norm = BytesPerToken(sequence=3 * FP32_BYTES * hidden)
    largest = max(in_mlp, in_attention, in_norm, key=lambda b: b.tp + b.sequence)
    return largest + BytesPerToken(sequence=numerics.residual_bytes * hidden)


@dataclass(frozen=True, kw_only=True)
class LossBytes:
    """Bytes per token and vocabulary entry around the loss, besides the logits themselves.

    Attributes:
        kept: from forward to backward of a micro-batch: the fp32 log-probabilities.
        forward, backward: what comes on top while the loss, or its gradient, is computed.
    """

    kept: int
    forward: int
    backward: int


def loss_bytes(precision: PrecisionSpec) -> LossBytes:
    """PyTorch's ``cross_entropy`` on logits upcast to fp32.

    Forward makes the fp32 copy (none in fp32); backward holds the gradients of the
    log-probabilities and of the fp32 logits.
    """
    upcast = 0 if precision.compute_bytes == FP32_BYTES else FP32_BYTES
    return LossBytes(kept=FP32_BYTES, forward=upcast, backward=2 * FP32_BYTES)
