"""What a plan of servers says: one row a layout, and what each layout trades against others."""

from dataclasses import dataclass, field

from meshfit.cluster.topology import Topology
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.load.loading import ReplicaLoad
from meshfit.serve.load.two_pools import TwoPoolsLoad
from meshfit.serve.memory.replica import ReplicaMemory
from meshfit.serve.setting.layout import Deployment, ServingLayout
from meshfit.serve.time.bounds import Bounds


@dataclass(frozen=True, kw_only=True)
class WiderTensorParallel:
    """What one doubling of tp would buy and cost, on the same accelerators (half the replicas).

    Ratios of the doubled over this one, under the same traffic; throughput at most.
    """

    layout: ServingLayout
    ttft: float
    tpot: float
    tokens_per_s_per_gpu: float
    kv_tokens: float


@dataclass(frozen=True, kw_only=True)
class ServingRow:
    """One layout under one engine.

    Attributes:
        memory: of a replica; of two pools, of one that decodes, and ``prefill_memory`` of one that
            computes prompts.
        verdict: ``does_not_fit``, or of those that fit ``saturated`` (cannot keep up),
            ``misses_targets`` or ``meets_targets``.
        load: None where a replica does not fit.
        tokens_per_s_per_gpu: output tokens of all replicas over all accelerators.
        price_per_million_tokens: None without a price.
        is_on_front: whether no other layout is at least as good in ttft, tpot and throughput.
        notes: kinds of layout without measured rows, and the like.
    """

    engine: str
    layout: Deployment
    memory: ReplicaMemory
    verdict: str
    prefill_memory: ReplicaMemory | None = None
    missed: tuple[str, ...] = ()
    load: ReplicaLoad | TwoPoolsLoad | None = None
    tokens_per_s_per_gpu: float = 0.0
    prefill_bound: Bounds | None = None
    decode_bound: Bounds | None = None
    price_per_million_tokens: float | None = None
    wider: WiderTensorParallel | None = None
    is_on_front: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServingPlan:
    """All rows of a job on ``accelerators``, sensible ones first, and what was refused.

    Attributes:
        tried: with ``cluster: auto``: accelerators -> how many layouts met the targets.
        rejected: layouts by the first rule that refuses them, over all engines.
    """

    job: ServingJob
    topology: Topology
    accelerators: int
    rows: tuple[ServingRow, ...]
    rejected: dict[str, int]
    seconds: float
    tried: dict[int, int] = field(default_factory=dict)

    @property
    def fitting(self) -> tuple[ServingRow, ...]:
        return tuple(row for row in self.rows if row.load is not None)

    @property
    def of_one_pool(self) -> tuple[ServingRow, ...]:
        return tuple(row for row in self.rows if isinstance(row.layout, ServingLayout))

    @property
    def meets_targets(self) -> bool:
        return any(row.verdict == "meets_targets" for row in self.rows)


def capacity_per_gpu(row: ServingRow) -> float:
    """Output tokens a second and accelerator that the layout could give at most; in a closed loop
    those that it gives."""
    assert row.load is not None
    return row.tokens_per_s_per_gpu / row.load.load if row.load.load else row.tokens_per_s_per_gpu
