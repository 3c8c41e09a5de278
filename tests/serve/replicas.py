"""Replicas that several tests ask about."""

from meshfit.cluster.catalogue import accelerator
from meshfit.cluster.shorthand import read_shorthand
from meshfit.engines import engine_profile
from meshfit.serve.memory.replica import ReplicaMemory, replica_memory
from meshfit.serve.setting.budget import serving_budget
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.quantized import served_as
from meshfit.serve.time.clock import ReplicaClock
from meshfit.serve.time.step_time import StepLoad
from meshfit.workload.models import read_model


def clock(
    model: str, cluster: str, *, engine: str = "vllm", weights: str = "auto", **degrees: int
) -> ReplicaClock:
    """The clock of one replica."""
    return ReplicaClock(
        model=served_as(read_model(model), weights),
        layout=ServingLayout(**degrees),
        profile=engine_profile(engine),
        topology=read_shorthand(cluster),
    )


def memory(
    model: str,
    device: str,
    *,
    tokens: int,
    engine: str = "vllm",
    weights: str = "auto",
    memory_fraction: float | None = None,
    cache_element_bytes: float = 2.0,
    **degrees: int,
) -> ReplicaMemory:
    """Memory of one replica."""
    profile, found = engine_profile(engine), accelerator(device)
    return replica_memory(
        served_as(read_model(model), weights),
        ServingLayout(**degrees),
        profile,
        found,
        request_tokens=tokens,
        budget=serving_budget(
            profile,
            found,
            memory_fraction=memory_fraction,
            cache_element_bytes=cache_element_bytes,
        ),
    )


def tokens_per_s(of: ReplicaClock, requests: int, *, context: int) -> float:
    """Output tokens a second of a replica that only decodes."""
    load = StepLoad(decode_requests=requests, decode_context_tokens=requests * context)
    return float(requests / of.step_s(load))
