"""The pools of a serving job's layout: its clock and its KV cache by prediction."""

from dataclasses import dataclass

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError, NothingFitsError
from meshfit.profile import EngineProfile
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.load.served import ServedReplica, served_replica
from meshfit.serve.setting.budget import serving_options
from meshfit.serve.setting.layout import (
    Deployment,
    DisaggregatedLayout,
    PoolSettings,
    ServingLayout,
)
from meshfit.serve.setting.scheduler import SchedulerSpec
from meshfit.serve.setting.space import require_legal
from meshfit.serve.simulate.arrivals import Draw
from meshfit.serve.simulate.pools import Pool, Pools, TwoPools
from meshfit.serve.simulate.step_table import StepTable
from meshfit.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class PredictedDeployment:
    """What is simulated of a layout: its pools, and requests as they are drawn for it."""

    pools: Pools
    draw: Draw


def predicted_deployment(
    job: ServingJob, deployment: Deployment, profile: EngineProfile, topology: Topology
) -> PredictedDeployment:
    """``deployment`` on ``topology`` under an engine.

    Raises:
        InputError: it takes more accelerators than there are, or the engine refuses it.
        NothingFitsError: a replica does not hold its weights and one request.
    """
    if deployment.num_accelerators > topology.num_accelerators:
        raise InputError(
            f"{deployment.label} takes {deployment.num_accelerators} accelerators, but the cluster has "
            f"{topology.num_accelerators}"
        )
    longest = job.model.max_position_embeddings
    if isinstance(deployment, DisaggregatedLayout):
        first = _replica(job, deployment.prefill, profile, topology, deployment.prefill_settings)
        second = _replica(job, deployment.decode, profile, topology, deployment.decode_settings)
        pools: Pools = TwoPools(
            prefill=_pool(first, job), decode=_pool(second, job), transfer_s=first.transfer_s
        )
        request_s = first.clock.request_s
    else:
        only = _replica(job, deployment, profile, topology, PoolSettings())
        pools, request_s = _pool(only, job), only.clock.request_s
    draw = Draw(
        requests=job.run.requests,
        seed=job.run.seed,
        longest_tokens=longest,
        request_s=request_s,
        speculation=job.speculation,
    )
    return PredictedDeployment(pools=pools, draw=draw)


def _replica(
    job: ServingJob,
    layout: ServingLayout,
    profile: EngineProfile,
    topology: Topology,
    settings: PoolSettings,
) -> ServedReplica:
    """One that the engine accepts and that fits."""
    require_legal(job.model, layout, profile, topology)
    found = served_replica(
        job.model,
        layout,
        profile,
        topology,
        budget=job.budget(profile, topology.accelerator, settings),
        request_tokens=_longest_likely(job),
        eager=job.eager,
    )
    memory = found.memory
    if not found.fits:
        raise NothingFitsError(
            f"{layout.label} does not fit: a rank holds {format_bytes(memory.memory.weights)} of "
            f"weights, and {format_bytes(-memory.margin_bytes)} are lacking for the KV cache of one "
            f"request of {memory.request_tokens} tokens ({topology.accelerator.name}, "
            f"{format_bytes(memory.capacity_bytes)})"
        )
    return found


def _pool(replica: ServedReplica, job: ServingJob) -> Pool:
    """Attention groups count together: they share out requests and tokens evenly."""
    layout, budget = replica.layout, replica.budget
    groups = layout.attention_dp
    scheduler = SchedulerSpec(
        max_sequences=budget.max_sequences * groups,
        token_budget=budget.step_tokens * groups,
        kv_capacity_tokens=replica.memory.kv_tokens,
        block_tokens=budget.page_tokens,
        mixed_steps=serving_options(replica.clock.profile).mixed_steps,
        micro_batches=layout.pp,
        draft_tokens=job.speculation.draft_tokens if job.speculation else 0,
    )
    table = StepTable(
        replica.clock, scheduler, max_context_tokens=job.model.max_position_embeddings
    )
    return Pool(replicas=layout.replicas, scheduler=scheduler, table=table, policy=job.run.routing)


def _longest_likely(job: ServingJob) -> int:
    """Tokens that all but one in a hundred prompts, and outputs, stay within; a trace may have any."""
    traffic, most = job.traffic, job.model.max_position_embeddings
    likely = traffic.prompt.quantile_tokens(0.99) + traffic.output.quantile_tokens(0.99)
    return min(most, int(likely))
