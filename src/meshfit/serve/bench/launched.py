"""Benchmarks of servers that are started for them: measured, and predicted by their own clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.record.serving import ServingRecord
from meshfit.serve.bench.benchmark import Benchmark, ClientName
from meshfit.serve.bench.calibrate import MeasuredClock, calibrate
from meshfit.serve.bench.document import bench_document
from meshfit.serve.bench.http import is_ready, require_client
from meshfit.serve.bench.measured import Measured, measured
from meshfit.serve.job.clusters import topology_for
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.servers.commands import ServerKind, ServerSettings, server_command
from meshfit.serve.servers.running import RunningServer, running_servers
from meshfit.serve.servers.weights import weights_folder
from meshfit.serve.setting.layout import Deployment, ServingLayout
from meshfit.serve.setting.scheduler import SchedulerSpec
from meshfit.serve.setting.space import require_legal
from meshfit.serve.simulate.deployment import predicted_deployment
from meshfit.serve.simulate.pools import Pool
from meshfit.serve.simulate.simulation import Simulation, simulate
from meshfit.serve.simulate.step_table import StepTable

_VLLM_SEQUENCES, _VLLM_STEP_TOKENS, _VLLM_BLOCKS, _VLLM_BLOCK_TOKENS = 64, 2048, 2048, 32
"""Of a vLLM that is started here where the job does not say: small, for the memory of a host."""

_CALIBRATED_SHARES = (0.05, 0.2, 0.4, 0.7)
"""Prompts that a clock is measured on, as shares of the model's longest context."""

BASIS = "simulated with a clock that was measured on this server, one request at a time"


@dataclass(frozen=True, kw_only=True)
class LaunchedBenchmark:
    """What was measured, and what a simulation of the same requests says."""

    record: ServingRecord
    measured: Measured
    predicted: Simulation
    clock: MeasuredClock

    @property
    def document(self) -> dict[str, Any]:
        """As ``serve bench --json`` prints it."""
        return bench_document(
            self.record, self.measured, self.predicted, basis=BASIS, clock=asdict(self.clock)
        )


def server_scheduler(kind: ServerKind, job: ServingJob, layout: ServingLayout) -> SchedulerSpec:
    """What a server of a kind lets into a step, as it is started here for a layout.

    Raises:
        InputError: of a GPU, the job's cluster is not known.
        NothingFitsError: a replica does not fit there.
    """
    longest = job.model.max_position_embeddings
    if kind == "transformers":
        return SchedulerSpec(
            max_sequences=1,
            token_budget=longest,
            kv_capacity_tokens=longest,
            block_tokens=1,
            prefix_caching=False,
        )
    if kind != "vllm-cpu":
        topology = topology_for(job, layout)
        pools = predicted_deployment(job, layout, engine_profile(kind), topology).pools
        assert isinstance(pools, Pool)
        return pools.scheduler
    return SchedulerSpec(
        max_sequences=job.max_sequences or _VLLM_SEQUENCES,
        token_budget=job.step_tokens or max(_VLLM_STEP_TOKENS, longest),
        kv_capacity_tokens=_VLLM_BLOCKS * _VLLM_BLOCK_TOKENS,
        block_tokens=_VLLM_BLOCK_TOKENS,
    )


def launchable(job: ServingJob, layout: Deployment, kind: ServerKind) -> ServingLayout:
    """The layout, where servers of the kind can be started for it.

    Raises:
        InputError: it has two pools, or the engine refuses it.
    """
    if not isinstance(layout, ServingLayout):
        raise InputError(f"{layout.label}: servers are started here for one pool, not for two")
    if kind != "transformers":  # whose command says what it lacks
        profile = engine_profile("vllm" if kind == "vllm-cpu" else kind)
        require_legal(job.model, layout, profile, topology_for(job, layout))
    return layout


@contextmanager
def launched(
    job: ServingJob, layout: ServingLayout, kind: ServerKind, folder: Path, weights: Path
) -> Iterator[list[RunningServer]]:
    """The replicas of a layout, answering; they end with the block.

    Raises:
        InputError: the server does not run such a layout, or is not installed.
        RunError: one did not start.
    """
    require_client()
    settings = ServerSettings(
        folder=weights,
        layout=layout,
        scheduler=server_scheduler(kind, job, layout),
        has_experts=job.model.moe is not None,
        memory_fraction=job.memory_fraction,
        eager=job.eager,
    )
    with running_servers(
        lambda index, port: server_command(kind, settings, port=port, index=index),
        folder,
        count=layout.replicas,
        ready_s=job.run.ready_s,
        is_ready=is_ready,
    ) as servers:
        yield servers


def bench_launched(
    job: ServingJob, kind: ServerKind, folder: Path, *, client: ClientName = "own"
) -> LaunchedBenchmark:
    """Starts the job's layout, measures its clock, drives the job's traffic through it and stops it.

    Raises:
        InputError: the job has no layout, or one that the server does not run.
        RunError: a server did not start, or the calibration failed.
    """
    if job.layout is None:
        raise InputError("no layout to start: give `layout:` in the job or --layout replicas=2")
    layout = launchable(job, job.layout, kind)
    with launched(job, layout, kind, folder, weights_folder(job, folder)) as servers:
        return bench_running(job, layout, kind, servers, folder, client=client)


def bench_running(
    job: ServingJob,
    layout: ServingLayout,
    kind: ServerKind,
    servers: list[RunningServer],
    folder: Path,
    *,
    client: ClientName = "own",
) -> LaunchedBenchmark:
    """Measures the clock of one of ``servers`` and drives the job's traffic through all of them."""
    benchmark = Benchmark(job=job, layout=layout, client=client)
    longest = job.model.max_position_embeddings
    clock = calibrate(
        servers[0],
        prompt_lengths=[max(1, int(share * longest)) for share in _CALIBRATED_SHARES],
        vocab_size=job.model.vocab_size,
        timeout_s=job.run.deadline_s,
    )
    scheduler = server_scheduler(kind, job, layout)
    table = StepTable(clock, scheduler, max_context_tokens=longest)
    pool = Pool(replicas=layout.replicas, scheduler=scheduler, table=table)
    predicted = simulate(pool, job.traffic, benchmark.draw, job.targets)
    record = benchmark.against(servers, folder)
    return LaunchedBenchmark(
        record=record,
        measured=measured(record, job.targets),
        predicted=predicted,
        clock=clock,
    )
