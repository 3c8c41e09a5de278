"""What is asked of a run, and what is kept of it. The types behind every file in a run folder.

``RunRequest`` is written before a run starts (with the prediction in it); the worker writes a
``RunResult``; the launcher adds the outcome and the parity verdict and appends one ``Record``.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from meshfit.breakdown import MemoryBreakdown, Prediction, TimeBreakdown
from meshfit.cluster.topology import DeviceType, Topology
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.workload.training import TrainingSpec

SCHEMA_VERSION = 1

Outcome = Literal[
    "ok",
    "out_of_memory",
    "hang",
    "crash",
    "invalid",
    "parity_failed",
    "launch_error",
    "interrupted",
]
Purpose = Literal["weights", "reference", "measure", "parity", "train", "parts"]
ParityKind = Literal["single_process", "reduced", "reference"]


@dataclass(frozen=True, kw_only=True)
class RoutingGroups:
    """How a layout's ranks share out the tokens that routers see.

    ``sequences`` of a micro-batch of one data-parallel rank; ``shards`` that a sequence is cut into,
    each another rank's.
    """

    sequences: int
    shards: int


@dataclass(frozen=True, kw_only=True)
class CheckpointRequest:
    """Checkpoints of a run.

    Attributes:
        folder: that holds all of them.
        every: steps between two; the last step has one in any case.
        keep: how many of the last good ones stay.
        asynchronous: training goes on while one is written.
        resume: start from the last good one; else the folder must hold none.
    """

    folder: str
    every: int
    keep: int = 2
    asynchronous: bool = False
    resume: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckpointReport:
    """What one save took, in seconds from when it began: ``blocked_s`` until training went on,
    ``written_s`` until the checkpoint was good. ``size_bytes`` of all ranks."""

    step: int
    blocked_s: float
    written_s: float
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One launch under torchrun.

    Attributes:
        plan_hash: identity of the sweep; a resume reuses only rows with the same hash.
        purpose: ``weights`` writes initial weights; ``reference`` also writes losses, gradient
            norms and first-step gradients to compare with; ``parity`` runs only the judged steps;
            ``measure`` runs everything; ``train`` takes its steps, with checkpoints, and is compared
            with nothing; ``parts`` is one process that measures the model part by part, a micro-batch
            for each of its steps, and draws the weights if they are not there.
        model_config: Hugging Face config, as read.
        weights: folder of safetensors that every layout loads its shards from.
        steps, warmup_steps: optimizer steps in all; how many first ones timing leaves out.
        judged_steps: first steps whose loss and gradient norm are judged.
        reference: folder of a finished reference run, None for the reference itself.
        track_memory: run one more step under the tensor tracker after the timed ones.
        profile_steps: how many more steps run under the step recorder after the timed ones; what is
            exposed and the timeline's details come from these, throughput never does.
        collective_timeout_s: how long one collective may wait.
        topology: where it runs, as ``topo --json`` says.
        hosts: name of the host that each rank must find itself on, by rank; empty where any will
            do.
        rank_order: axes of the mesh in the order that ranks are laid in, the outermost first.
        routing_groups: of a reference, the layout whose ranks' limits on experts, and auxiliary
            losses, it applies to its whole batch; None: its own micro-batches are what counts.
    """

    schema_version: int = SCHEMA_VERSION
    plan_hash: str
    candidate: str
    repeat: int = 0
    purpose: Purpose
    model_config: dict[str, Any]
    weights: str
    layout: LayoutSpec
    training: TrainingSpec
    device_type: DeviceType
    steps: int
    warmup_steps: int
    judged_steps: int = 5
    seed: int = 0
    threads_per_rank: int = 1
    reference: str | None = None
    track_memory: bool = True
    profile_steps: int = 0
    collective_timeout_s: float = 300.0
    compile: bool = False
    topology: dict[str, Any] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    rank_order: tuple[str, ...] = AXES
    routing_groups: RoutingGroups | None = None
    prediction: Prediction | None = None
    checkpoint: CheckpointRequest | None = None


@dataclass(frozen=True, kw_only=True)
class ParameterGradient:
    """One parameter's first-step gradient against the reference, over all its shards.

    ``error`` is the relative L2 distance; ``ratio`` the least-squares factor by which the
    candidate's gradient is the reference's (1 when right).
    """

    name: str
    error: float
    ratio: float


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """Where one rank's profiled steps went, on average.

    Attributes:
        time: by the terms that predictions have; ``time.step`` is as long as the profiled step,
            which recording makes longer than a timed one.
        waiting_s: time without computation until the last rank joined a communication, all axes.
        communication_s: time with any communication under way, hidden or not.
        host_s, core_wait_s: of ``time.other``, in which the rank's thread ran (Python, PyTorch's way to
            the next operation, DTensor), and in which it was ready and no core was free; None where
            this was not counted (older records, devices, no Linux).
    """

    time: TimeBreakdown
    waiting_s: float
    communication_s: float
    host_s: float | None = None
    core_wait_s: float | None = None

    @property
    def unattributed_s(self) -> float:
        """What of ``time.other`` nothing explains."""
        other_s = self.time.other or 0.0
        return max(0.0, other_s - (self.host_s or 0.0) - (self.core_wait_s or 0.0))


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What one rank measured. Step times hold every step, warm-up included."""

    rank: int
    host: str
    step_s: tuple[float, ...]
    input_wait_s: tuple[float, ...]
    memory: MemoryBreakdown | None
    """Peak of a step; None when no step was tracked and the device keeps no count."""
    resident_bytes: int | None = None
    """Peak resident set of the process, all libraries included."""
    stage: int = 0
    profile: StepProfile | None = None
    """None when no step was recorded."""
    first_bad_loss: int | None = None
    """First step whose loss was not finite on this rank, before any sum over ranks."""
    dispatch_s: tuple[float, ...] = ()
    """Of every step, time in which rows went to their experts (forward, and gradients of what experts
    gave back), waiting for other ranks included; empty without expert parallelism."""
    combine_s: tuple[float, ...] = ()
    """The same of the way back."""


@dataclass(frozen=True, kw_only=True)
class RoutingReport:
    """What routers of a mixture of experts did, over all ranks. Tuples hold every step, warm-up
    included, unless they say otherwise.

    Attributes:
        layers: numbers of the layers with experts.
        tokens_per_expert: copies of tokens sent to each expert, dropped ones included, all layers
            together; [steps][experts].
        tokens_per_layer: the same of all steps together; [layers][experts].
        imbalance: copies of the fullest expert over the mean, of the worst layer.
        entropy: of a router's scores (made to add up to 1) for a token, in nats, the mean over tokens
            and layers; a router without a preference has the logarithm of the number of experts.
        dropped, padded: copies that found their expert full; places that were sent empty.
        auxiliary_loss: mean over micro-batches of the unscaled loss; empty where there is none.
        auxiliary_scope: what its means are over: ``rank``, the micro-batch of one data-parallel rank.
        loss_by_route: mean loss of the tokens that weigh this expert most in the last layer that has
            experts; None where there is no such token; [steps][experts].
    """

    layers: tuple[int, ...]
    tokens_per_expert: tuple[tuple[int, ...], ...]
    tokens_per_layer: tuple[tuple[int, ...], ...]
    imbalance: tuple[float, ...]
    entropy: tuple[float, ...]
    dropped: tuple[int, ...]
    padded: tuple[int, ...]
    auxiliary_loss: tuple[float, ...] = ()
    auxiliary_scope: Literal["rank"] | None = None
    loss_by_route: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, kw_only=True)
class ReplayedSteps:
    """The judged steps run again with the reference's router choices, because some of a layout's own
    were others (``differing_tokens``, summed over layers and steps)."""

    losses: tuple[float, ...]
    gradient_norms: tuple[float, ...]
    differing_tokens: int
    auxiliary_loss: tuple[float, ...] = ()
    """As ``RoutingReport.auxiliary_loss``."""


@dataclass(frozen=True, kw_only=True)
class PartCost:
    """What one part of a model takes on one device, for one micro-batch.

    Attributes:
        name: ``embedding``, ``layer`` with its number, ``head`` (final norm, head and loss).
        seconds: of forward and backward, recomputation included; the median over micro-batches.
        kept_bytes: from its forward to its backward.
        parameter_bytes, trained_bytes: of all its parameters, and of those that are trained.
    """

    name: str
    seconds: float
    kept_bytes: int
    parameter_bytes: int
    trained_bytes: int


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What the worker found. Losses and gradient norms are per optimizer step, already global."""

    schema_version: int = SCHEMA_VERSION
    losses: tuple[float, ...]
    gradient_norms: tuple[float, ...]
    useful_tokens_per_step: int
    gradients: tuple[ParameterGradient, ...] = ()
    ranks: tuple[RankReport, ...]
    phases_s: dict[str, float] = field(default_factory=dict)
    """Seconds from process start: import, init, build, first step, train (all timed steps), end."""
    environment: dict[str, Any] = field(default_factory=dict)
    sample_ids: tuple[tuple[int, ...], ...] = ()
    """Sample ids of each judged step, in global order."""
    first_step: int = 0
    """Steps that a checkpoint had behind it: losses, norms and samples are of the steps from here."""
    load_s: float | None = None
    """Seconds to read, check and take over that checkpoint, on the slowest rank; None without."""
    checkpoints: tuple[CheckpointReport, ...] = ()
    routing: RoutingReport | None = None
    """None in a dense model."""
    replayed: ReplayedSteps | None = None
    """What parity is judged by, with ``gradients``, where router choices were replayed."""
    parts: tuple[PartCost, ...] = ()
    """In the model's order; of the purpose ``parts`` alone."""


@dataclass(frozen=True, kw_only=True)
class Parity:
    """Whether a candidate computes what the reference computes.

    ``kind`` says against what: one process on the same model, one process on the model cut to few
    layers, or another layout on the full model.
    """

    ok: bool
    kind: ParityKind
    loss_error: float
    """Of the cross entropy; of the loss that routers of experts add, ``auxiliary_error``."""
    gradient_norm_error: float
    gradient_error: float | None
    worst_parameter: str | None
    tolerance_loss: float
    tolerance_gradient: float
    factor: str | None = None
    """A failing ratio that equals a known factor, in words."""
    auxiliary_error: float | None = None
    """None where routers add nothing to the loss."""
    replayed_tokens: int | None = None
    """Where it was judged with the reference's router choices: tokens whose own were others."""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a run did not end well, and which rank is to blame."""

    message: str
    rank: int | None = None
    phase: str | None = None
    step: int | None = None
    signal: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of results.jsonl: one launch, whatever became of it."""

    schema_version: int = SCHEMA_VERSION
    plan_hash: str
    candidate: str
    repeat: int
    purpose: Purpose
    layout: LayoutSpec
    """The candidate's own; on a cut model its request may have other stages."""
    outcome: Outcome
    started_at: str
    """UTC, ISO 8601."""
    seconds: float
    result: RunResult | None = None
    parity: Parity | None = None
    failure: Failure | None = None
    prediction: Prediction | None = None
    folder: str = ""
    """Relative to the run folder."""


@dataclass(frozen=True, kw_only=True)
class PlannedLayout:
    """One layout that a sweep will run, and what was expected of it beforehand."""

    layout: LayoutSpec
    prediction: Prediction


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """What was decided before anything ran. A resume takes it as it stands.

    Attributes:
        plan_hash: identity of everything that decides the sweep's result.
        layouts: in the order of their first launch.
        baseline: label of the layout that is in the comparison whatever its rank.
        parity_kind: what parity is proved against; ``parity_layout`` runs it in one process on
            ``parity_config``, which ``parity_steps`` name the cuts of.
        capacity_bytes: memory of one rank that layouts were held against.
        document: what tiers 0 and 1 found, as ``plan --json`` prints it.
    """

    schema_version: int = SCHEMA_VERSION
    plan_hash: str
    created_at: str
    layouts: tuple[PlannedLayout, ...]
    baseline: str | None
    parity_kind: ParityKind
    parity_layout: LayoutSpec
    parity_config: dict[str, Any]
    parity_steps: tuple[str, ...]
    capacity_bytes: int
    document: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Residual:
    """One layout of one sweep. Bytes are those of the rank that holds most.

    Attributes:
        recorded_at: UTC, ISO 8601; meshfit: the version that predicted.
        model_config: Hugging Face config, as read.
        software: versions of what it ran with, by package.
        predicted_terms: seconds of a step by term, without any correction.
        predicted_memory_bytes, measured_memory_bytes: what the allocator holds (on CPU: live
            tensors), without context.
        measured_step_s: median over timed steps of all repeats, ``timed_steps`` of them.
    """

    schema_version: int = SCHEMA_VERSION
    recorded_at: str
    meshfit: str
    plan_hash: str
    model: str
    model_config: dict[str, Any]
    training: TrainingSpec
    topology: Topology
    engine: str
    engine_version: str
    layout: LayoutSpec
    predicted_terms: dict[str, float]
    predicted_memory_bytes: int
    measured_step_s: float
    measured_memory_bytes: int | None
    timed_steps: int
    software: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """What identifies it: a sweep measures a layout once."""
        return self.plan_hash, self.layout.label
