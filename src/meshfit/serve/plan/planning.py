"""Every sensible layout of a serving job: memory, latencies, throughput, price, and what each trades."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.serve.job.clusters import cluster_of
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.load.loading import DEFAULT_PERCENTILE, ReplicaLoad
from meshfit.serve.load.served import ServedReplica, served_replica
from meshfit.serve.load.two_pools import PoolPair, TwoPoolsLoad
from meshfit.serve.plan.pairs import pool_pairs
from meshfit.serve.plan.rows import ServingPlan, ServingRow, WiderTensorParallel, capacity_per_gpu
from meshfit.serve.setting.layout import Deployment, DisaggregatedLayout
from meshfit.serve.setting.space import serving_space
from meshfit.serve.time.bounds import Bounds, phase_bounds
from meshfit.serve.time.device import is_measured

AUTO_COUNTS: tuple[int, ...] = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64)
"""Accelerators that ``cluster: auto x NAME`` tries, in order."""


def make_serving_plan(job: ServingJob) -> ServingPlan:
    """The plan of a job; with ``cluster: auto`` of the fewest accelerators that meet its targets, or
    of the most that were tried where none do.

    Raises:
        InputError: the job's traffic is a trace, or ``auto`` comes without targets or a rate.
    """
    if job.traffic.trace is not None:
        raise InputError(
            "serve plan takes traffic.rate or concurrency with lengths; `meshfit serve simulate` "
            "plays a trace"
        )
    started = time.perf_counter()
    if job.topology is not None:
        topology = job.topology
        rows, rejected = _rows(job, topology, topology.num_accelerators)
        return ServingPlan(
            job=job,
            topology=topology,
            accelerators=topology.num_accelerators,
            rows=rows,
            rejected=rejected,
            seconds=time.perf_counter() - started,
        )
    if not job.targets:
        raise InputError(
            "cluster: auto finds the fewest accelerators that meet the targets, and there are none; "
            "write targets: {ttft: {p95: 500 ms}, itl: {p95: 40 ms}}"
        )
    tried: dict[int, int] = {}
    for count in AUTO_COUNTS:
        topology = cluster_of(job.accelerator, count)
        rows, rejected = _rows(job, topology, count)
        tried[count] = sum(row.verdict == "meets_targets" for row in rows)
        if tried[count]:
            break
    return ServingPlan(
        job=job,
        topology=topology,
        accelerators=count,
        rows=rows,
        rejected=rejected,
        seconds=time.perf_counter() - started,
        tried=tried,
    )


def _rows(
    job: ServingJob, topology: Topology, accelerators: int
) -> tuple[tuple[ServingRow, ...], dict[str, int]]:
    found: list[ServingRow] = []
    rejected: Counter[str] = Counter()
    for profile in job.profiles:
        space = serving_space(job.model, profile, topology, accelerators)
        rejected.update(space.rejected)
        replicas = [
            served_replica(
                job.model,
                layout,
                profile,
                topology,
                budget=job.budget(profile, topology.accelerator),
                request_tokens=job.longest_tokens,
                eager=job.eager,
            )
            for layout in space.layouts
        ]
        of_engine = [_row(job, replica) for replica in replicas]
        found += [_with_wider(row, of_engine) for row in of_engine]
        pairs = pool_pairs(replicas, job.traffic, accelerators)
        found += [_pair_row(job, pair) for pair in pairs]
    return tuple(sorted(_with_front(found), key=_order)), dict(rejected)


_VERDICTS = ("meets_targets", "misses_targets", "saturated", "does_not_fit")


def _order(row: ServingRow) -> tuple[int, bool, float]:
    """Those that meet targets first, then the front, then by throughput."""
    return _VERDICTS.index(row.verdict), not row.is_on_front, -row.tokens_per_s_per_gpu


def _row(job: ServingJob, replica: ServedReplica) -> ServingRow:
    """Of one pool."""
    layout, clock = replica.layout, replica.clock
    row = ServingRow(
        engine=clock.profile.name,
        layout=layout,
        memory=replica.memory,
        verdict="does_not_fit",
        notes=_notes(layout, clock.topology.accelerator.name),
    )
    load = replica.under(job.traffic)
    if not replica.fits or load is None:
        return row
    return _loaded(
        job,
        row,
        load,
        tokens_per_s_per_gpu=load.output_tokens_per_s / layout.ranks_per_replica,
        bounds=phase_bounds(clock, job.traffic, load.in_flight),
    )


def _pair_row(job: ServingJob, pair: PoolPair) -> ServingRow:
    """Of two pools."""
    layout, load = pair.layout, pair.under(job.traffic)
    prefill, decode = pair.prefill.replica, pair.decode.replica
    row = ServingRow(
        engine=decode.clock.profile.name,
        layout=layout,
        memory=decode.memory,
        prefill_memory=prefill.memory,
        verdict="does_not_fit",
        notes=_notes(layout, decode.clock.topology.accelerator.name),
    )
    return _loaded(
        job,
        row,
        load,
        tokens_per_s_per_gpu=load.output_tokens_per_s / layout.num_accelerators,
        bounds=(pair.prefill.bounds, load.decode_bounds),
    )


def _loaded(
    job: ServingJob,
    row: ServingRow,
    load: ReplicaLoad | TwoPoolsLoad,
    *,
    tokens_per_s_per_gpu: float,
    bounds: tuple[Bounds, Bounds],
) -> ServingRow:
    """A row that fits, under its traffic; ``bounds`` of a prompt and of decoding."""
    missed = tuple(target.name for target in job.targets if not load.meets(target))
    return replace(
        row,
        verdict=_verdict(load, missed),
        missed=missed,
        load=load,
        tokens_per_s_per_gpu=tokens_per_s_per_gpu,
        prefill_bound=bounds[0],
        decode_bound=bounds[1],
        price_per_million_tokens=_price(job, tokens_per_s_per_gpu),
    )


def _verdict(load: ReplicaLoad | TwoPoolsLoad, missed: Sequence[str]) -> str:
    if not load.keeps_up:
        return "saturated"
    return "misses_targets" if missed else "meets_targets"


def _price(job: ServingJob, tokens_per_s_per_gpu: float) -> float | None:
    if job.price_per_device_h is None:
        return None
    return job.price_per_device_h / (tokens_per_s_per_gpu * 3600) * 1e6


def _notes(layout: Deployment, accelerator: str) -> tuple[str, ...]:
    """What no measured server stands behind."""
    two = isinstance(layout, DisaggregatedLayout)
    pools = (
        (layout.prefill, layout.decode) if isinstance(layout, DisaggregatedLayout) else (layout,)
    )
    found = {
        "two pools: behind them stand 65 servers of one model, to which nothing was fitted": two,
        "pp: no measured server behind it": any(pool.pp > 1 for pool in pools),
        "over several hosts: no measured server behind it": any(
            pool.ranks_per_replica > 8 for pool in pools
        ),
        f"{accelerator}: no measured server behind it": not is_measured(accelerator),
    }
    return tuple(note for note, is_so in found.items() if is_so)


def _with_wider(row: ServingRow, others: Sequence[ServingRow]) -> ServingRow:
    """With what one more doubling of tp buys and costs, where it is legal and fits."""
    own = row.layout
    if row.load is None or isinstance(own, DisaggregatedLayout) or own.replicas % 2:
        return row
    ep = own.ep if own.ep == 1 else own.ep * 2
    doubled = replace(own, tp=own.tp * 2, replicas=own.replicas // 2, ep=ep)
    wider = next((one for one in others if one.layout == doubled), None)
    if wider is None or wider.load is None:
        return row
    return replace(
        row,
        wider=WiderTensorParallel(
            layout=doubled,
            ttft=wider.load.ttft_s / row.load.ttft_s,
            tpot=wider.load.tpot_s / row.load.tpot_s,
            tokens_per_s_per_gpu=capacity_per_gpu(wider) / capacity_per_gpu(row),
            kv_tokens=wider.memory.kv_tokens
            * doubled.replicas
            / (row.memory.kv_tokens * own.replicas),
        ),
    )


def _with_front(rows: Sequence[ServingRow]) -> list[ServingRow]:
    """Marks rows that no other beats in everything: ttft, tpot and highest throughput."""
    scored = [(row, _scores(row)) for row in rows]
    fitting = [scores for _, scores in scored if scores is not None]
    return [
        replace(
            row,
            is_on_front=scores is not None and not any(_beats(other, scores) for other in fitting),
        )
        for row, scores in scored
    ]


def _scores(row: ServingRow) -> tuple[float, ...] | None:
    """Small is good; None of what does not fit or cannot keep up."""
    if row.load is None or not row.load.keeps_up:
        return None
    ttft = row.load.latency_s("ttft", DEFAULT_PERCENTILE)
    return (ttft, row.load.tpot_s, -capacity_per_gpu(row))


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
