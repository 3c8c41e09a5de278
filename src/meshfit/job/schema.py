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
    """``synthetic``: random token ids; ``text``: bytes of files; ``documents``: prompts and answers of a
    JSON Lines file, of which answers are targets."""
    path: str | None = None
    """File, folder or glob of the tokens, from the job's folder; ``${stdlib}`` is Python's standard
    library."""
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Of random tokens, and of the order of sequences."""


class PrecisionFile(Strict):
    """A precision that has no name of its own; types of the copies that there are."""

    compute: StateType = "bf16"
    """Type of matmuls' operands and of kept activations."""
    fp8_recipe: Fp8Recipe | None = None
    """How scales are made; given, matmuls compute in fp8."""
    master: StateType = "fp32"
    """Type of the parameters that the optimizer updates."""
    gradients: StateType | None = None
    """Type of gradients as they are kept; None: as ``master``."""
    moments: StateType | None = None
    """Type of the optimizer's moments; None: as ``master``."""


class AdapterFile(Strict):
    """Adapters; no targets: every linear of attention and MLP."""

    rank: Annotated[int, Field(gt=0, le=65_536, strict=True)] = DEFAULT_ADAPTER_RANK
    """Inner dimension of both factors."""
    targets: list[str] = []
    """Linears that have one, as transformers calls them (``q_proj``)."""


class MethodFile(Strict):
    """``{lora: {rank, targets}}`` or ``{qlora: {rank, targets}}``."""

    lora: AdapterFile | None = None
    """Low-rank adapters on frozen weights in the compute type."""
    qlora: AdapterFile | None = None
    """The same on weights of 4 bits."""


class RuntimeFile(Strict):
    """How the engine is told to compute; what is left out is the engine's own choice."""

    compile: bool | None = None
    """Whether layers go through ``torch.compile``."""
    attention: AttentionKernel = "auto"
    """Kernel of softmax attention: FlashAttention 1 or 2 (``flash1``, ``flash``), the fastest fused one
    (``cudnn``), or one that keeps the scores (``unfused``)."""
    loss: LossKind | None = None
    """``plain`` makes fp32 logits, ``fused`` is one kernel of logits and loss gradient, ``chunked`` never
    holds all logits."""
    allocator: Allocator = "default"
    """PyTorch's caching allocator with fixed or expandable segments."""
    fp8_recipe: Fp8Recipe | None = None
    """How fp8 scales are made."""
    fp8_parameters: bool = False
    """Whether weights are gathered and kept in fp8."""
    attention_dropout: Fraction | None = None
    """Probability in training; None: the model's."""
    hidden_dropout: Fraction | None = None
    """Probability in training; None: the model's."""
    overlap_gradients: bool | None = None
    """Whether data-parallel reduction runs under computation."""
    overlap_parameters: bool | None = None
    """Whether data-parallel gathering runs under computation."""
    overlap_tensor_parallel: bool | None = None
    """Whether tensor parallelism's collectives run in pieces under its matmuls."""
    fused_gradient_accumulation: bool | None = None
    """Whether the matmul itself adds to the main gradient."""
    bucket: str | Count | None = None
    """Size of a data-parallel bucket: ``25 MB``, or bytes."""
    optimizer_in_backward: bool = False
    """Whether each parameter is updated as soon as its gradient is there."""
    paged_optimizer: bool = False
    """Whether the driver moves optimizer states between accelerator and host."""
    communication_sms: Fraction | None = None
    """Share of the accelerator that communication kernels take."""
    expert_imbalance: Annotated[float, Field(ge=1, lt=1e6)] = 1.0
    """Tokens of the fullest expert-parallel rank over an even share."""
    expert_capacity_factor: Annotated[float, Field(gt=0, lt=1e6)] | None = None
    """Tokens that an expert takes over an even share, the rest dropped; None: dropless."""
    router_bias_rate: Annotated[float, Field(ge=0, lt=1)] = 0.001
    """By how much a balancing bias moves after each step."""
    power_limit: str | Count | None = None
    """Of one accelerator: ``450 W``, or watts; None: its own."""


class WorkloadFile(Strict):
    kind: Literal["training"] = "training"
    """``serving`` jobs have keys of their own."""
    method: Literal["full", "lora", "qlora"] | MethodFile = "full"
    """What is trained: all weights, or adapters."""
    sequence_length: Count
    """Tokens of one sequence."""
    documents: Literal["packed", "padded"] = "packed"
    """Whether documents fill sequences, or are padded to them."""
    lengths: str | None = None
    """File of documents' lengths in tokens, one a line, from the job's folder; None: every sequence
    is one document."""
    global_batch: str | Count
    """Of one optimizer step: ``128 sequences``, ``4M tokens``, or sequences."""
    precision: PrecisionName | PrecisionFile = "bf16_mixed"
    """A name, or types of each copy."""
    optimizer: OptimizerName = "adamw"
    """Its moments decide memory; the native engine runs ``adamw``, ``sgd`` and ``muon``."""
    learning_rate: Annotated[Number, Field(gt=0)] = 1e-3
    """Of real runs; constant."""
    weight_decay: Annotated[Number, Field(ge=0)] = 0.01
    """Of real runs."""
    max_grad_norm: Annotated[Number, Field(gt=0)] | None = 1.0
    """Gradients are clipped to this norm; null: not at all."""
    data: DataFile = DataFile()
    """Where tokens of real runs come from."""


Multiple = Annotated[float, BeforeValidator(_no_truth_value), Field(ge=1, lt=1e6)]
"""How many times as much; at least 1."""


class AssumeFile(Strict):
    """What no one can know before a run; what is left out is as predictions have it."""

    expert_imbalance: Multiple | None = None
    """Tokens of the fullest expert-parallel rank over an even share."""
    straggler: Multiple | None = None
    """How many times as long the slowest rank computes as the others."""
    contention: Multiple | None = None
    """How many times as long collectives between hosts take, others using the network too."""
    length_imbalance: Multiple | None = None
    """Attention of the rank with the longest documents over the mean."""


class LayoutFile(Strict):
    """One layout; what is absent is 1 or the engine's default."""

    dp_replicate: Count | None = None
    """Ranks that hold the same states and split the batch (DDP; HSDP's outer axis)."""
    dp_shard: Count | None = None
    """Ranks that split the batch and shard states as ``zero_stage`` says."""
    tp: Count | None = None
    """Tensor parallel degree."""
    sp: bool | None = None
    """Sequence parallelism between tensor parallel blocks."""
    cp: Count | None = None
    """Context parallel degree."""
    cp_method: Literal["ring", "all_gather", "all_to_all", "hierarchical"] | None = None
    """How context parallel ranks exchange keys and values."""
    cp_inner: Count | None = None
    """Neighbours that exchange heads in a hierarchical exchange."""
    pp: Count | None = None
    """Pipeline ranks."""
    vpp: Count | None = None
    """Virtual stages on each pipeline rank."""
    schedule: str | None = None
    """Of the pipeline: ``gpipe``, ``1f1b``, ``interleaved_1f1b``, ``looped_bfs``, ``interleaved_zero_bubble``,
    ``zbv_zero_bubble``, ``dualpipe_v``."""
    stage_layers: StageLayers | None = None
    """Layers of every stage in model order, as a list or ``7:8x14:7``; None: as even as can be."""
    ep: Count | None = None
    """Expert parallel degree, inside dp_shard x cp x tp."""
    etp: Count | None = None
    """Expert tensor parallel degree."""
    zero_stage: ZeroStage | None = None
    """Sharded over ``dp_shard``: 0 nothing, 1 the optimizer, 2 all, parameters gathered from forward
    to backward, 3 all, gathered for each use."""
    reshard_after_forward: bool | None = None
    """FSDP2's name for it: false is ``zero_stage: 2``, true is 3."""
    micro_batch_size: Count | None = None
    """Sequences one forward takes on one data-parallel rank."""
    recompute: str | None = None
    """Activations made again in backward: ``none``, ``selective`` (core attention), ``operations``,
    ``alternate`` (every n-th layer), ``block`` (the first n of a stage), ``full``."""
    recompute_layers: Count | None = None
    """The n of ``alternate`` and ``block``; layers to a checkpoint of ``full``."""
    offload: str | None = None
    """What lies in the host's memory between uses: ``cpu`` (parameters, gradients, optimizer) or
    ``activations``."""


class SearchFile(Strict):
    """Bounds or pins of any axis or policy; what is left out is searched."""

    dp_replicate: Count | list[Count] | None = None
    """One value, or those to try."""
    dp_shard: Count | list[Count] | None = None
    """One value, or those to try."""
    tp: Count | list[Count] | None = None
    """One value, or those to try."""
    sp: bool | list[bool] | None = None
    """One value, or those to try."""
    cp: Count | list[Count] | None = None
    """One value, or those to try."""
    pp: Count | list[Count] | None = None
    """One value, or those to try."""
    vpp: Count | list[Count] | None = None
    """One value, or those to try."""
    schedule: str | list[str] | None = None
    """One value, or those to try."""
    ep: Count | list[Count] | None = None
    """One value, or those to try."""
    etp: Count | list[Count] | None = None
    """One value, or those to try."""
    zero_stage: ZeroStage | list[ZeroStage] | None = None
    """One value, or those to try."""
    micro_batch_size: Count | list[Count] | None = None
    """One value, or those to try."""
    recompute: str | list[str] | None = None
    """One value, or those to try."""
    cp_method: str | list[str] | None = None
    """One value, or those to try."""
    offload: str | list[str] | None = None
    """One value, or those to try."""
    headroom: str | Number = "10%"
    """Share of each accelerator's memory that has to stay free: ``10%``, or 0 to 1."""


class RunFile(Strict):
    shortlist: Launches = SHORTLIST_LENGTH
    """Most layouts that are run, the baseline not counted."""
    repeats: Launches = 2
    """Launches of each layout, interleaved (A B C A B C)."""
    steps: Count = 20
    """Optimizer steps of one launch."""
    warmup: Annotated[int, Field(ge=0, strict=True)] = 5
    """First steps of a launch that timing leaves out."""
    parity: Literal["auto", "single_process", "reduced"] = "auto"
    """What a layout is compared with: one process, the model cut to few layers, or whichever can be
    held."""
    deadline: str | Number = "15 min"
    """Wall clock of one launch: ``15 min``, or seconds."""
    hang: str | Number = "3 min"
    """Silence of all ranks before a launch counts as hung: ``3 min``, or seconds."""
    threads_per_rank: Annotated[int, Field(gt=0, le=1024, strict=True)] = 1
    """CPU threads of one rank."""
    port: Annotated[int, Field(ge=0, le=65535, strict=True)] | None = None
    """Of the rendezvous; None: a free one for each launch."""
    budget: str | None = None
    """Accelerator time after which no launch is started: ``4 GPU-h``, ``30 rank-min``."""


class BudgetFile(Strict):
    """The whole training run: ``{tokens: 15T, price: 2.5 USD/GPU-h, mtbf: 50000 GPU-h}``."""

    tokens: str | Count
    """To train on in all: ``15T``."""
    price: str | Number | None = None
    """Of one accelerator: ``2.5 USD/GPU-h``; None: no cost."""
    mtbf: str | None = None
    """Accelerator time between failures that stop the job: ``50000 GPU-h``; None: none happen."""
    restart: str | Number = "10 min"
    """From a failure until the job trains again: ``10 min``, or seconds."""
    save: str | Number | None = None
    """Time that training stands still for a checkpoint; None: its size over what storage takes."""
    checkpoint_every: str | Number | None = None
    """Training time between checkpoints; None: the best one."""


class JobFile(Strict):
    schema_version: Literal[1]
    """Of this file."""
    name: str | None = None
    """Of the run folder; None: the file's or folder's."""
    model: str
    """A name of ``meshfit catalogue models``, a config.json, a folder that holds one (and weights),
    or ORG/NAME in the local Hub cache."""
    workload: WorkloadFile
    """What one training step does."""
    runtime: RuntimeFile | None = None
    """How the engine is told to compute."""
    assume: AssumeFile = AssumeFile()
    """What no one can know before a run."""
    cluster: str | dict[str, Any] = "here"
    """``8x8 H100-SXM`` (hosts x devices), a cluster.yaml, its mapping written here, or ``here``."""
    engine: str | list[str] = "native"
    """Whose rules hold; the first of several is the job's, ``check`` asks all."""
    layout: LayoutFile | None = None
    """The one layout that a command on one layout takes; ``--layout`` changes keys of it."""
    rank_order: str | list[str] | None = None
    """Axes that ranks are laid over, the outermost first; None: the engine's."""
    baseline: str | LayoutFile | None = None
    """A layout, or a file with one, that is always run and compared."""
    search: SearchFile = SearchFile()
    """Bounds of the space of layouts, and the headroom."""
    run: RunFile = RunFile()
    """How real runs are done."""
    budget: BudgetFile | None = None
    """The whole training run, for its days, cost and goodput."""
    calibration: str | None = None
    """File of measured runs that correct predictions; ``none``: formulas alone; None: the person's
    own."""
    curves: str | None = None
    """Collectives as ``meshfit probe --out FILE`` measured them; ``none``; None: the person's own."""
