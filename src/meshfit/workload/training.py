"""What one training step does: batch, sequence, precision, optimizer and data."""

from dataclasses import dataclass, field
from typing import Literal

from meshfit.workload.documents import DocumentSpec, useful_share

PrecisionName = Literal["fp32", "bf16_mixed", "fp16_mixed", "fp8_mixed", "bf16"]
MatmulType = Literal["fp32", "bf16", "fp16", "fp8"]
Fp8Recipe = Literal["delayed", "tensorwise", "rowwise", "blockwise", "mxfp8"]
OptimizerName = Literal["adamw", "adamw_8bit", "sgd", "muon"]
AttentionKernel = Literal["auto", "flash1", "flash", "cudnn", "unfused"]
"""``flash1``, ``flash``: FlashAttention of the first and the second version; ``cudnn``: the fastest
fused kernel there is (FlashAttention 3 on Hopper)."""
LossKind = Literal["plain", "fused", "chunked"]
Allocator = Literal["default", "expandable"]


@dataclass(frozen=True, kw_only=True)
class PrecisionSpec:
    """Bytes of one element of each kind of training state.

    Which copies of a parameter exist, and where, is the engine's: FSDP2 keeps only the one that is
    updated and casts it on the way; Megatron-Core keeps one in the compute type beside it.
    """

    name: PrecisionName
    matmul: MatmulType
    """What matmuls compute in; fp8 ones read and write ``compute_bytes`` around them."""
    compute_bytes: int
    """Of what matmuls read and activations are kept in."""
    parameter_bytes: int
    """Of the parameters that the optimizer updates (the master copy)."""
    gradient_bytes: int
    moment_bytes: int
    """Of one optimizer moment."""

    @property
    def known_as(self) -> str:
        """Its name, where that says all of it."""
        return self.name if PRECISIONS[self.name] == self else "of given types"


def _precision(
    name: PrecisionName, matmul: MatmulType, *, compute_bytes: int, state_bytes: int = 4
) -> PrecisionSpec:
    return PrecisionSpec(
        name=name,
        matmul=matmul,
        compute_bytes=compute_bytes,
        parameter_bytes=state_bytes,
        gradient_bytes=state_bytes,
        moment_bytes=state_bytes,
    )


PRECISIONS: dict[PrecisionName, PrecisionSpec] = {
    "fp32": _precision("fp32", "fp32", compute_bytes=4),
    "bf16_mixed": _precision("bf16_mixed", "bf16", compute_bytes=2),
    "fp16_mixed": _precision("fp16_mixed", "fp16", compute_bytes=2),
    "fp8_mixed": _precision("fp8_mixed", "fp8", compute_bytes=2),
    "bf16": _precision("bf16", "bf16", compute_bytes=2, state_bytes=2),
}

OPTIMIZER_MOMENTS: dict[OptimizerName, int] = {"adamw": 2, "adamw_8bit": 2, "sgd": 0, "muon": 1}
"""Optimizer -> tensors of a parameter's size that it keeps (Muon: of a matrix)."""


@dataclass(frozen=True, kw_only=True)
class AdapterSpec:
    """Low-rank adapters on frozen weights.

    Attributes:
        rank: inner dimension of both factors.
        targets: names of the linears that have one, as transformers calls them below a block
            (``q_proj``); empty: those of attention and MLP.
        base_bits: bits of a frozen weight as stored (4 under QLoRA), None in the compute type.
    """

    rank: int
    targets: tuple[str, ...] = ()
    base_bits: int | None = None


@dataclass(frozen=True, kw_only=True)
class RuntimeSpec:
    """How an engine is told to compute, where a person may choose; None: the engine's default.

    Attributes:
        compile: whether layers go through ``torch.compile``.
        attention: kernel of softmax attention; ``unfused`` keeps the scores.
        loss: ``plain`` makes fp32 logits, ``fused`` one kernel of logits and loss gradient,
            ``chunked`` never holds the logits of the whole micro-batch.
        allocator: PyTorch's caching allocator with fixed or expandable segments.
        fp8_recipe: how fp8 scales are made; ``fp8_parameters`` whether weights are gathered, and
            kept, in fp8.
        attention_dropout, hidden_dropout: probabilities in training, where they are not the
            model's own.
        overlap_gradients, overlap_parameters: whether data-parallel reduction and gathering run
            under computation.
        overlap_tensor_parallel: whether tensor parallelism's collectives are cut into pieces that
            run under its matmuls (userbuffers, async TP).
        fused_gradient_accumulation: whether weight gradients are added to the main gradient by the
            matmul itself.
        bucket_bytes: of a data-parallel bucket.
        optimizer_in_backward: whether each parameter is updated as soon as backward has its gradient,
            which is freed at once; only where a step is one micro-batch.
        paged_optimizer: whether optimizer states lie in memory that the driver moves between
            accelerator and host (bitsandbytes' paged optimizers).
        communication_sms: share of the accelerator that communication kernels take, 0-1.
        expert_imbalance: tokens of the fullest expert-parallel rank over an even share.
        expert_capacity_factor: copies of tokens that an expert takes from a rank's micro-batch over
            an even share; what is beyond is dropped. None: dropless.
        router_bias_rate: by how much a balancing bias moves after each step (DeepSeek-V3: 0.001).
    """

    compile: bool | None = None
    attention: AttentionKernel = "auto"
    loss: LossKind | None = None
    allocator: Allocator = "default"
    fp8_recipe: Fp8Recipe | None = None
    fp8_parameters: bool = False
    attention_dropout: float | None = None
    hidden_dropout: float | None = None
    overlap_gradients: bool | None = None
    overlap_parameters: bool | None = None
    overlap_tensor_parallel: bool | None = None
    fused_gradient_accumulation: bool | None = None
    bucket_bytes: int | None = None
    optimizer_in_backward: bool = False
    paged_optimizer: bool = False
    communication_sms: float | None = None
    expert_imbalance: float = 1.0
    expert_capacity_factor: float | None = None
    router_bias_rate: float = 0.001


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Where tokens come from.

    ``synthetic``: uniform random token ids from ``seed``. ``text``: the bytes of the files that
    ``path`` names (a file, a folder or a glob; ``${stdlib}`` is the folder of the running Python's
    standard library), one token a byte, cut into sequences in a seeded order. ``documents``: prompts
    and their answers, one of them a line of the JSON Lines file ``path``; one token a byte, packed
    whole one after another in a seeded order, of which only answers are targets.
    """

    source: Literal["synthetic", "text", "documents"] = "synthetic"
    path: str | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class AssumptionSpec:
    """What no one can know before a run, as a person assumes it; None: as predictions have it.

    Attributes:
        straggler: how many times as long the slowest rank computes as the others.
        contention: how many times as long collectives between hosts take because others use the
            network too.
        length_imbalance: attention of the rank with the longest documents over the mean.
    """

    straggler: float | None = None
    contention: float = 1.0
    length_imbalance: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """The workload of one optimizer step, independent of any layout.

    ``global_batch_size`` counts sequences; ``max_grad_norm`` None means no clipping. ``adapter``
    None trains every weight. ``documents`` None: every sequence is one whole document.
    """

    sequence_length: int
    global_batch_size: int
    precision: PrecisionSpec
    optimizer: OptimizerName = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    max_grad_norm: float | None = 1.0
    data: DataSpec = field(default_factory=DataSpec)
    adapter: AdapterSpec | None = None
    runtime: RuntimeSpec = field(default_factory=RuntimeSpec)
    documents: DocumentSpec | None = None
    assume: AssumptionSpec = field(default_factory=AssumptionSpec)

    @property
    def method(self) -> str:
        """``full``, ``lora`` or ``qlora``."""
        if self.adapter is None:
            return "full"
        return "lora" if self.adapter.base_bits is None else "qlora"

    @property
    def tokens_per_step(self) -> int:
        return self.sequence_length * self.global_batch_size

    @property
    def useful_tokens_per_step(self) -> float:
        """Without what only pads."""
        return self.tokens_per_step * useful_share(self.documents, self.sequence_length)
