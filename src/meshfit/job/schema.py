"""The job file as a person writes it. Pydantic guards it; ``job.read`` turns it into a ``Job``."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from meshfit.job.spec import SHORTLIST_LENGTH
from meshfit.mesh.spec import stages_of_text
from meshfit.workload.training import (
    Allocator,
    AttentionKernel,
    Fp8Recipe,
    LossKind,
    OptimizerName,
    PrecisionName,
)

SCHEMA_VERSION = 1

DEFAULT_ADAPTER_RANK = 16


def _stages(value: Any) -> Any:
    """``7:8x14:7`` as a list."""
    return stages_of_text(value) or value if isinstance(value, str) else value


Count = Annotated[int, Field(gt=0, lt=2**31, strict=True)]
LayerCount = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
StageLayers = Annotated[list[LayerCount], BeforeValidator(_stages)]
Launches = Annotated[int, Field(gt=0, le=1000, strict=True)]
StateType = Literal["fp32", "bf16", "fp16"]
Fraction = Annotated[float, Field(ge=0, lt=1)]
ZeroStage = Annotated[int, Field(ge=0, le=3, strict=True)]


def _no_truth_value(value: Any) -> Any:
    """True is 1 to Python; to a person it is no number."""
    if isinstance(value, bool):
        raise ValueError("a number")
    return value


Number = Annotated[float, BeforeValidator(_no_truth_value), Field(allow_inf_nan=False)]
"""A finite number; as text, too, since YAML reads ``1e-3`` as one."""


class Strict(BaseModel):
    """A block of the file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataFile(Strict):
    source: Literal["synthetic", "text", "documents"] = "synthetic"
    path: str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0


class PrecisionFile(Strict):
    """A precision that has no name of its own; types of the copies that there are."""

    compute: StateType = "bf16"
    fp8_recipe: Fp8Recipe | None = None
    master: StateType = "fp32"
    gradients: StateType | None = None
    moments: StateType | None = None


class AdapterFile(Strict):
    """Adapters; no targets: every linear of attention and MLP."""

    rank: Annotated[int, Field(gt=0, le=65_536, strict=True)] = DEFAULT_ADAPTER_RANK
    targets: list[str] = []


class MethodFile(Strict):
    """``{lora: {rank, targets}}`` or ``{qlora: {rank, targets}}``."""

    lora: AdapterFile | None = None
    qlora: AdapterFile | None = None


class RuntimeFile(Strict):
    """How the engine is told to compute; what is left out is the engine's own choice."""

    compile: bool | None = None
    attention: AttentionKernel = "auto"
    loss: LossKind | None = None
    allocator: Allocator = "default"
    fp8_recipe: Fp8Recipe | None = None
    fp8_parameters: bool = False
    attention_dropout: Fraction | None = None
    hidden_dropout: Fraction | None = None
    overlap_gradients: bool | None = None
    overlap_parameters: bool | None = None
    overlap_tensor_parallel: bool | None = None
    fused_gradient_accumulation: bool | None = None
    bucket: str | Count | None = None
    optimizer_in_backward: bool = False
    paged_optimizer: bool = False
    communication_sms: Fraction | None = None
    expert_imbalance: Annotated[float, Field(ge=1, lt=1e6)] = 1.0
    expert_capacity_factor: Annotated[float, Field(gt=0, lt=1e6)] | None = None
    router_bias_rate: Annotated[float, Field(ge=0, lt=1)] = 0.001
    power_limit: str | Count | None = None


class WorkloadFile(Strict):
    kind: Literal["training"] = "training"
    method: Literal["full", "lora", "qlora"] | MethodFile = "full"
    sequence_length: Count
    documents: Literal["packed", "padded"] = "packed"
    lengths: str | None = None
    global_batch: str | Count
    precision: PrecisionName | PrecisionFile = "bf16_mixed"
    optimizer: OptimizerName = "adamw"
    learning_rate: Annotated[Number, Field(gt=0)] = 1e-3
    weight_decay: Annotated[Number, Field(ge=0)] = 0.01
    max_grad_norm: Annotated[Number, Field(gt=0)] | None = 1.0
    data: DataFile = DataFile()


Multiple = Annotated[float, BeforeValidator(_no_truth_value), Field(ge=1, lt=1e6)]
"""How many times as much; at least 1."""


class AssumeFile(Strict):
    """What no one can know before a run; what is left out is as predictions have it."""

    expert_imbalance: Multiple | None = None
    straggler: Multiple | None = None
    contention: Multiple | None = None
    length_imbalance: Multiple | None = None


class LayoutFile(Strict):
    """One layout; what is absent is 1 or the engine's default."""

    dp_replicate: Count | None = None
    dp_shard: Count | None = None
    tp: Count | None = None
    sp: bool | None = None
    cp: Count | None = None
    cp_method: Literal["ring", "all_gather", "all_to_all", "hierarchical"] | None = None
    cp_inner: Count | None = None
    pp: Count | None = None
    vpp: Count | None = None
    schedule: str | None = None
    stage_layers: StageLayers | None = None
    ep: Count | None = None
    etp: Count | None = None
    zero_stage: ZeroStage | None = None
    reshard_after_forward: bool | None = None
    micro_batch_size: Count | None = None
    recompute: str | None = None
    recompute_layers: Count | None = None
    offload: str | None = None


class SearchFile(Strict):
    """Bounds or pins of any axis or policy; what is left out is searched."""

    dp_replicate: Count | list[Count] | None = None
    dp_shard: Count | list[Count] | None = None
    tp: Count | list[Count] | None = None
    sp: bool | list[bool] | None = None
    cp: Count | list[Count] | None = None
    pp: Count | list[Count] | None = None
    vpp: Count | list[Count] | None = None
    schedule: str | list[str] | None = None
    ep: Count | list[Count] | None = None
    etp: Count | list[Count] | None = None
    zero_stage: ZeroStage | list[ZeroStage] | None = None
    micro_batch_size: Count | list[Count] | None = None
    recompute: str | list[str] | None = None
    cp_method: str | list[str] | None = None
    offload: str | list[str] | None = None
    headroom: str | Number = "10%"


class RunFile(Strict):
    shortlist: Launches = SHORTLIST_LENGTH
    repeats: Launches = 2
    steps: Count = 20
    warmup: Annotated[int, Field(ge=0, strict=True)] = 5
    parity: Literal["auto", "single_process", "reduced"] = "auto"
    deadline: str | Number = "15 min"
    hang: str | Number = "3 min"
    threads_per_rank: Annotated[int, Field(gt=0, le=1024, strict=True)] = 1
    port: Annotated[int, Field(ge=0, le=65535, strict=True)] | None = None
    budget: str | None = None


class BudgetFile(Strict):
    """The whole training run: ``{tokens: 15T, price: 2.5 USD/GPU-h, mtbf: 50000 GPU-h}``."""

    tokens: str | Count
    price: str | Number | None = None
    mtbf: str | None = None
    restart: str | Number = "10 min"
    save: str | Number | None = None
    checkpoint_every: str | Number | None = None


class JobFile(Strict):
    schema_version: Literal[1]
    name: str | None = None
    model: str
    workload: WorkloadFile
    runtime: RuntimeFile | None = None
    assume: AssumeFile = AssumeFile()
    cluster: str | dict[str, Any] = "here"
    engine: str | list[str] = "native"
    layout: LayoutFile | None = None
    rank_order: str | list[str] | None = None
    baseline: str | LayoutFile | None = None
    search: SearchFile = SearchFile()
    run: RunFile = RunFile()
    budget: BudgetFile | None = None
    calibration: str | None = None
    curves: str | None = None
