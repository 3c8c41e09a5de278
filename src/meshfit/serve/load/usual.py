"""One setting of a server: what a replica holds, and how fast it is under a usual load."""

from dataclasses import dataclass

from meshfit.cluster.topology import Topology
from meshfit.profile import EngineProfile
from meshfit.serve.asked.traffic import LengthSpec, TrafficSpec
from meshfit.serve.load.loading import ReplicaLoad
from meshfit.serve.load.served import served_replica
from meshfit.serve.memory.replica import ReplicaMemory
from meshfit.serve.setting.budget import ServingBudget
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.time.clock import ReplicaClock
from meshfit.workload.model import ModelSpec

USUAL_PROMPT_TOKENS = 1024
USUAL_OUTPUT_TOKENS = 256
USUAL_REQUESTS_PER_ACCELERATOR = 16
"""A load to compare settings under, where nobody says one: requests in flight, and their lengths."""


LENGTH_STEP = 1024
"""Lengths of requests that are proposed are multiples of it, where they are longer."""


def whole_length(tokens: int) -> int:
    """A length to tell a server, of at most ``tokens``."""
    return tokens // LENGTH_STEP * LENGTH_STEP or tokens


@dataclass(frozen=True, kw_only=True)
class ServerSetting:
    """A layout under a budget.

    Attributes:
        memory: of a replica, for requests of the longest length.
        load: one replica's part of the traffic; None where the pool holds no usual request of it.
    """

    layout: ServingLayout
    budget: ServingBudget
    clock: ReplicaClock
    memory: ReplicaMemory
    load: ReplicaLoad | None

    @property
    def kv_tokens(self) -> int:
        """Tokens in the caches of all replicas."""
        return self.memory.kv_tokens * self.layout.replicas

    @property
    def concurrency(self) -> int:
        """Requests of the longest length that all replicas compute at once."""
        return self.memory.concurrency * self.layout.replicas

    @property
    def output_tokens_per_s(self) -> float:
        """Of all replicas; 0 where there is no load."""
        return 0.0 if self.load is None else self.load.output_tokens_per_s * self.layout.replicas


def usual_traffic(accelerators: int, request_tokens: int) -> TrafficSpec:
    """A closed loop of requests of one length, within the longest that the server takes."""
    prompt = max(1, min(USUAL_PROMPT_TOKENS, request_tokens * 3 // 4))
    output = max(1, min(USUAL_OUTPUT_TOKENS, request_tokens // 4))
    return TrafficSpec(
        prompt=LengthSpec(median_tokens=prompt, p99_tokens=prompt),
        output=LengthSpec(median_tokens=output, p99_tokens=output),
        arrivals="closed",
        concurrency=USUAL_REQUESTS_PER_ACCELERATOR * accelerators,
    )


def setting_of(
    model: ModelSpec,
    layout: ServingLayout,
    profile: EngineProfile,
    topology: Topology,
    *,
    budget: ServingBudget,
    request_tokens: int,
    traffic: TrafficSpec,
) -> ServerSetting:
    """What a layout holds and does under ``traffic`` of all its replicas together."""
    replica = served_replica(
        model, layout, profile, topology, budget=budget, request_tokens=request_tokens
    )
    return ServerSetting(
        layout=layout,
        budget=budget,
        clock=replica.clock,
        memory=replica.memory,
        load=replica.under(traffic),
    )
