"""What every layer of a model shares as far as memory goes: width, types and kernels."""

from dataclasses import dataclass
from typing import Literal

from meshfit.profile import EngineProfile
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import AdapterSpec, PrecisionSpec, TrainingSpec

FP32_BYTES = 4

NormKernel = Literal["by_hand", "fp32", "fused"]
"""How an RMS norm computes. ``by_hand``: Hugging Face's, which upcasts, normalises, and scales in
the type that came in. ``fp32``: the scaling too is done in fp32 (Gemma; PyTorch's ``nn.RMSNorm``
up to 2.8, which is several operations). ``fused``: one kernel."""

AttentionKernel = Literal["flash", "unfused", "math"]
"""``flash``: any kernel that never writes the scores (flash, memory-efficient, cuDNN). ``unfused``:
Hugging Face's eager attention. ``math``: ``scaled_dot_product_attention`` where no kernel takes the
shapes: on CPU, values of another width than keys."""

_FP32_NORMS = ("gemma",)
"""Families whose norms scale in fp32 (``modeling_gemma2.py``: ``output * (1.0 + weight.float())``)."""

_SPELT_OUT_ACTIVATIONS = frozenset(("gelu_new", "gelu_fast"))
"""Activations that transformers writes out as several operations, each keeping its operand."""

_DEFAULT_ACTIVATIONS = {"gpt2": "gelu_new", "gptj": "gelu_new", "phi": "gelu_new", "gpt_neo": "gelu_new"}  # fmt: skip
"""Of families whose configs may leave it out."""

_ONE_QKV_MATMUL = frozenset(
    ("gpt2", "gpt_neox", "gpt_bigcode", "phi3", "falcon", "bloom", "mpt", "dbrx")
)
"""Families whose q, k and v are one matmul."""

_FUSED_QKV = frozenset(("gpt_neox", "phi3"))
"""Families with rotary positions whose q, k and v are one matmul: v is kept as a view of it, beside
the rotated q and k."""

_FP32_ROUTERS = ("deepseek", "glm4_moe", "kimi", "longcat", "ernie")
"""Families whose routers multiply in fp32, from a copy of their input."""


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
class LayerBasis:
    """What decides which tensors a layer keeps, beside its blocks.

    Attributes:
        layer_norm: norms are layer norms, which PyTorch always fuses.
        norm_kernel: how RMS norms compute inside layers; ``outer_norm_kernel``: behind the last one,
            which no compiled layer holds.
        compiled: layers go through ``torch.compile``.
        attention: the kernel of softmax attention; ``takes_unequal_heads``: whether it takes values
            of another width than keys.
        broadcasts_one_key: one key head meets all queries by broadcasting, which no kernel takes.
        qkv_matmuls: linears that read a block's input.
        fused_qkv: beside rotated q and k a view of all three is kept, for v.
        scores_capped: ``unfused`` attention keeps scores before a soft cap (Gemma 2).
        masked: packed documents reach the kernel as a mask of sequence x sequence, which each layer
            makes in the compute type.
        repeats_keys: keys and values are copied to the number of query heads before the kernel, as
            transformers does beside a mask.
        activation_tensors: tensors that the activation of a plain MLP keeps, its output included.
        gathered_inputs: under sequence parallelism the gathered input of a linear is kept.
        gathers_latents: latents of attention are made of a rank's own tokens, and gathered.
        attention_dropout, hidden_dropout: probabilities.
        adapter: None where all weights are trained.
        fp32_router: the router multiplies in fp32, from a copy of its input.
    """

    hidden_size: int
    sequence_length: int
    numerics: Numerics
    layer_norm: bool
    norm_kernel: NormKernel
    outer_norm_kernel: NormKernel
    compiled: bool
    attention: AttentionKernel
    takes_unequal_heads: bool
    broadcasts_one_key: bool
    qkv_matmuls: int
    fused_qkv: bool
    scores_capped: bool
    masked: bool
    repeats_keys: bool
    activation_tensors: int
    fp32_router: bool
    gathered_inputs: bool
    gathers_latents: bool
    attention_dropout: float
    hidden_dropout: float
    adapter: AdapterSpec | None

    @property
    def residual_bytes(self) -> int:
        return self.numerics.residual_bytes

    @property
    def compute_bytes(self) -> int:
        return self.numerics.compute_bytes

    def attention_for(self, *, keys: int, key_dim: int, value_dim: int) -> AttentionKernel:
        """The kernel for so many key heads of these widths."""
        unequal = key_dim != value_dim and not self.takes_unequal_heads
        broadcast = keys == 1 and self.broadcasts_one_key
        return "math" if self.attention == "flash" and (unequal or broadcast) else self.attention


def layer_basis(
    model: ModelSpec,
    training: TrainingSpec,
    profile: EngineProfile,
    numerics: Numerics,
    *,
    on_cpu: bool = False,
) -> LayerBasis:
    """How ``profile`` computes the layers of ``model``."""
    runtime = training.runtime
    compiled = profile.compiles if runtime.compile is None else runtime.compile
    dropout = model.dropout if profile.keeps_dropout else 0.0
    masked = training.data.source == "documents"
    return LayerBasis(
        hidden_size=model.hidden_size,
        sequence_length=training.sequence_length,
        numerics=numerics,
        layer_norm=model.norm == "layer_norm",
        norm_kernel=_norm_kernel(model, profile, compiled=compiled),
        outer_norm_kernel=_norm_kernel(model, profile, compiled=False),
        compiled=compiled,
        attention="unfused" if runtime.attention == "unfused" else "flash",
        takes_unequal_heads=not on_cpu,
        broadcasts_one_key=model.model_type == "falcon",
        qkv_matmuls=1 if model.model_type in _ONE_QKV_MATMUL else 3,
        fused_qkv=model.model_type in _FUSED_QKV,
        scores_capped=bool(model.config.get("attn_logit_softcapping")),
        masked=masked,
        repeats_keys=profile.repeats_keys or masked,
        activation_tensors=_activation_tensors(model, profile, compiled=compiled),
        fp32_router=model.model_type.startswith(_FP32_ROUTERS),
        gathered_inputs=profile.saves_gathered_inputs,
        gathers_latents=profile.gathers_latents,
        attention_dropout=_first(runtime.attention_dropout, dropout),
        hidden_dropout=_first(runtime.hidden_dropout, dropout),
        adapter=training.adapter,
    )


def _first(given: float | None, default: float) -> float:
    return default if given is None else given


def _norm_kernel(model: ModelSpec, profile: EngineProfile, *, compiled: bool) -> NormKernel:
    if compiled or profile.norm_kernel == "fused":
        return "fused"
    if model.model_type.startswith(_FP32_NORMS):
        return "fp32"
    return profile.norm_kernel


def _activation_tensors(model: ModelSpec, profile: EngineProfile, *, compiled: bool) -> int:
    """Input and output where one kernel does it; ``gelu_new`` keeps input, half of it, tanh, one
    plus tanh and output; a ReLU its output alone."""
    given = model.config.get("activation_function") or model.config.get("hidden_act")
    name = given or _DEFAULT_ACTIVATIONS.get(model.model_type, "")
    if name == "relu":
        return 1
    if name in _SPELT_OUT_ACTIVATIONS and not (compiled or profile.fused_activations):
        return 5
    return 2
