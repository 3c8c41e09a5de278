"""A serving job as the rest of meshfit sees it: what is served, to which traffic, where and how."""

from dataclasses import dataclass
from pathlib import Path

from meshfit.cluster.topology import AcceleratorSpec, Topology
from meshfit.profile import EngineProfile
from meshfit.serve.asked.routing import Policy
from meshfit.serve.asked.speculation import SpeculationSpec
from meshfit.serve.asked.traffic import Target, TrafficSpec
from meshfit.serve.setting.budget import ServingBudget, serving_budget
from meshfit.serve.setting.layout import Deployment, PoolSettings
from meshfit.workload.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class ServingRunSpec:
    """How simulations and real benchmarks are done.

    Attributes:
        requests: drawn of the traffic, with ``seed``.
        ready_s: that a server may take to answer; deadline_s: that one request may take.
    """

    requests: int
    seed: int
    routing: Policy
    ready_s: float
    deadline_s: float


@dataclass(frozen=True, kw_only=True)
class ServingJob:
    """One serving job, read and resolved.

    Attributes:
        weights: a folder with the model's weights; None where there are none.
        baseline_weights: unquantised ones, whose output that of ``weights`` is compared with; None:
            the same.
        targets: latencies that must be met together; none where nothing is asked.
        cache_element_bytes: of one element of the KV cache; None: as the model computes.
        topology: where it is to run; None where the fewest accelerators are to be found
            (``cluster: auto x NAME``), which ``accelerator`` names.
        profiles: of the engines that are considered.
        memory_fraction, max_sequences, step_tokens: None: the engine's default.
        eager: whether the host launches every kernel, instead of captured graphs.
        price_per_device_h: in ``currency``; None where the job has no price.
        layout: the one to simulate or to bench; layouts: those that ``serve fit`` is told to run.
    """

    name: str
    model: ModelSpec
    weights: Path | None
    baseline_weights: Path | None
    traffic: TrafficSpec
    targets: tuple[Target, ...]
    cache_element_bytes: float | None
    speculation: SpeculationSpec | None
    topology: Topology | None
    accelerator: str
    profiles: tuple[EngineProfile, ...]
    memory_fraction: float | None
    max_sequences: int | None
    step_tokens: int | None
    eager: bool
    layout: Deployment | None
    layouts: tuple[Deployment, ...]
    run: ServingRunSpec
    price_per_device_h: float | None = None
    currency: str = "USD"

    @property
    def longest_tokens(self) -> int:
        """Prompt and output of the longest request: the 99th percentiles of both."""
        return round(self.traffic.prompt.p99_tokens + self.traffic.output.p99_tokens)

    def budget(
        self,
        profile: EngineProfile,
        accelerator: AcceleratorSpec,
        settings: PoolSettings | None = None,
    ) -> ServingBudget:
        """Of an engine on an accelerator: a pool's settings before the job's, and the engine's defaults
        for the rest."""
        own = settings or PoolSettings()
        return serving_budget(
            profile,
            accelerator,
            memory_fraction=own.memory_fraction or self.memory_fraction,
            cache_element_bytes=self.cache_element_bytes or 2.0,
            step_tokens=own.step_tokens or self.step_tokens,
            max_sequences=own.max_sequences or self.max_sequences,
            has_graphs=not self.eager,
        )
