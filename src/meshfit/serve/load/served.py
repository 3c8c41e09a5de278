"""One replica of a layout under an engine: its clock, its budget and its memory."""

from dataclasses import dataclass, replace

from meshfit.cluster.topology import Topology
from meshfit.profile import EngineProfile
from meshfit.serve.asked.traffic import TrafficSpec
from meshfit.serve.load.loading import ReplicaLoad, replica_load
from meshfit.serve.memory.replica import ReplicaMemory, replica_memory
from meshfit.serve.setting.budget import ServingBudget
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.time.clock import ReplicaClock
from meshfit.workload.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class ServedReplica:
    """One of the equal replicas of ``layout``."""

    layout: ServingLayout
    clock: ReplicaClock
    budget: ServingBudget
    memory: ReplicaMemory

    @property
    def fits(self) -> bool:
        return self.memory.verdict == "fits"

    def capacity(self, tokens: float) -> int:
        """Requests of so many tokens that it computes at once."""
        return replace(self.memory, request_tokens=round(tokens)).concurrency

    def under(self, traffic: TrafficSpec) -> ReplicaLoad | None:
        """Its part of the traffic of all replicas; None where the pool holds no usual request."""
        capacity = self.capacity(traffic.prompt.mean_tokens + traffic.output.mean_tokens / 2)
        if capacity == 0:
            return None
        return replica_load(
            self.clock,
            traffic,
            replicas=self.layout.replicas,
            capacity=capacity,
            step_tokens=self.budget.step_tokens,
        )

    def transfer_s(self, tokens: float) -> float:
        """Seconds in which every rank sends its part of the cache of so many tokens over the outermost
        level of the cluster."""
        link = self.clock.topology.levels[-1]
        rate = link.bandwidth_bytes_per_s / link.oversubscription
        return link.latency_s + tokens * self.memory.worst.cache.bytes_per_token / rate


def served_replica(
    model: ModelSpec,
    layout: ServingLayout,
    profile: EngineProfile,
    topology: Topology,
    *,
    budget: ServingBudget,
    request_tokens: int,
    eager: bool = False,
    release: str = "",
) -> ServedReplica:
    """One replica of ``layout``.

    Args:
        request_tokens: prompt and output of the longest request that must run.
        eager, release: see ``ReplicaClock``.
    """
    clock = ReplicaClock(
        model=model,
        layout=layout,
        profile=profile,
        topology=topology,
        cache_bytes=budget.cache_element_bytes,
        eager=eager,
        release=release,
    )
    memory = replica_memory(
        model,
        layout,
        profile,
        topology.accelerator,
        request_tokens=request_tokens,
        budget=budget,
        held=clock.held,
    )
    return ServedReplica(layout=layout, clock=clock, budget=budget, memory=memory)
