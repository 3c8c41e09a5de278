"""The pools of a serving job's layout: its clock and its KV cache by prediction."""

from dataclasses import dataclass

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError, NothingFitsError
from meshfit.profile import EngineProfile
from meshfit.serve.budget import ServingBudget, serving_options
from meshfit.serve.clock import ReplicaClock
from meshfit.serve.job import ServingJob
from meshfit.serve.layout import Deployment, DisaggregatedLayout, ServingLayout
from meshfit.serve.memory import ReplicaMemory, replica_memory
from meshfit.serve.simulate.arrivals import Draw
from meshfit.serve.simulate.pools import Pool, Pools, TwoPools
from meshfit.serve.simulate.scheduler import SchedulerSpec
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
        InputError: it takes more accelerators than there are.
        NothingFitsError: a replica does not hold its weights and one request.
    """
    if deployment.num_accelerators > topology.num_accelerators:
        raise InputError(
            f"{deployment.label} takes {deployment.num_accelerators} accelerators, but the cluster has "
            f"{topology.num_accelerators}"
        )
    longest = job.model.max_position_embeddings
    if isinstance(deployment, DisaggregatedLayout):
        first = _Replica.of(job, deployment.prefill, profile, topology)
        second = _Replica.of(job, deployment.decode, profile, topology)
        pools: Pools = TwoPools(
            prefill=first.pool(job), decode=second.pool(job), transfer_s=first.transfer_s
        )
        request_s = first.clock.request_s
    else:
        only = _Replica.of(job, deployment, profile, topology)
        pools, request_s = only.pool(job), only.clock.request_s
    draw = Draw(
        requests=job.run.requests,
        seed=job.run.seed,
        longest_tokens=longest,
        request_s=request_s,
        speculation=job.speculation,
    )
    return PredictedDeployment(pools=pools, draw=draw)


@dataclass(frozen=True, kw_only=True)
class _Replica:
    layout: ServingLayout
    clock: ReplicaClock
    memory: ReplicaMemory
    budget: ServingBudget
    topology: Topology

    @classmethod
    def of(
        cls, job: ServingJob, layout: ServingLayout, profile: EngineProfile, topology: Topology
    ) -> "_Replica":
        budget = job.budget(profile, topology.accelerator)
        clock = ReplicaClock(
            model=job.model,
            layout=layout,
            profile=profile,
            topology=topology,
            cache_bytes=budget.cache_element_bytes,
        )
        memory = replica_memory(
            job.model,
            layout,
            profile,
            topology.accelerator,
            request_tokens=_longest_likely(job),
            budget=budget,
            held=clock.held,
        )
        if memory.verdict == "does_not_fit":
            raise NothingFitsError(
                f"{layout.label} does not fit: a rank holds {format_bytes(memory.memory.weights)} of "
                f"weights, and {format_bytes(-memory.margin_bytes)} are lacking for the KV cache of one "
                f"request of {memory.request_tokens} tokens ({topology.accelerator.name}, "
                f"{format_bytes(memory.capacity_bytes)})"
            )
        return cls(layout=layout, clock=clock, memory=memory, budget=budget, topology=topology)

    def pool(self, job: ServingJob) -> Pool:
        """Attention groups count together: they share out requests and tokens evenly."""
        groups = self.layout.attention_dp
        scheduler = SchedulerSpec(
            max_sequences=self.budget.max_sequences * groups,
            token_budget=self.budget.step_tokens * groups,
            kv_capacity_tokens=self.memory.kv_tokens,
            block_tokens=self.budget.page_tokens,
            mixed_steps=serving_options(self.clock.profile).mixed_steps,
            micro_batches=self.layout.pp,
            draft_tokens=job.speculation.draft_tokens if job.speculation else 0,
        )
        table = StepTable(
            self.clock, scheduler, max_context_tokens=job.model.max_position_embeddings
        )
        return Pool(
            replicas=self.layout.replicas,
            scheduler=scheduler,
            table=table,
            policy=job.run.routing,
        )

    def transfer_s(self, tokens: int) -> float:
        """Every rank sends its part of the cache over the outermost level of the cluster."""
        link = self.topology.levels[-1]
        rate = link.bandwidth_bytes_per_s / link.oversubscription
        return link.latency_s + tokens * self.memory.worst.cache.bytes_per_token / rate


def _longest_likely(job: ServingJob) -> int:
    """Tokens that all but one in a hundred prompts, and outputs, stay within; a trace may have any."""
    traffic, most = job.traffic, job.model.max_position_embeddings
    likely = traffic.prompt.quantile_tokens(0.99) + traffic.output.quantile_tokens(0.99)
    return min(most, int(likely))
