"""A deployment under traffic: latencies, goodput, use of the replicas, and how close they are to the
rate beyond which no latency means anything."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from meshfit.errors import InputError
from meshfit.serve.asked.latencies import (
    Percentiles,
    RequestTimes,
    is_good,
    latency_percentiles,
    missed_targets,
)
from meshfit.serve.asked.traffic import Metric, Target, TrafficSpec
from meshfit.serve.simulate.arrivals import Draw, draw_requests
from meshfit.serve.simulate.disaggregated import serve_disaggregated
from meshfit.serve.simulate.fleet import serve_closed_loop, serve_open_loop
from meshfit.serve.simulate.pools import Pool, Pools, TwoPools
from meshfit.serve.simulate.replica import Replica
from meshfit.serve.simulate.request import Request
from meshfit.serve.simulate.saturation import saturation_rate_per_s
from meshfit.serve.simulate.use import PoolUse, gaps_in, pool_use
from meshfit.serve.simulate.window import Window, window_of

Stability = Literal["stable", "near_saturation", "overloaded", "closed_loop", "unknown"]
"""Below, within and beyond ``NEAR_SATURATION`` of the rate that the deployment keeps up with; in a
closed loop clients wait, so that nothing can overflow; unknown where all requests arrive at once."""

NEAR_SATURATION = 0.9
"""Load from which a capacity that is wrong by a tenth decides between milliseconds and minutes."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What came of a deployment under traffic.

    Attributes:
        latencies: metric -> percentile -> seconds, over ``measured`` requests after the warm-up.
        offered_per_s: requests a second as they arrived; None where all arrived at once.
        served_per_s, output_tokens_per_s: completed in the window that is looked at.
        good_fraction, good_per_s: of requests within all targets at once; None without targets.
        missed: targets that are not met -> what was found, in seconds.
        refused: why requests can never be served -> how many.
        reused_fraction: of tokens of prompts, those found in a prefix cache.
        saturation_per_s: the highest rate that the deployment keeps up with.
        cut: requests that were cut to the longest context of the model.
        load: offered over saturation rate; None in a closed loop, and where all arrived at once.
        pools: ``replicas``, or ``prefill`` and ``decode``.
    """

    latencies: dict[Metric, Percentiles]
    measured: int
    offered_per_s: float | None
    served_per_s: float
    output_tokens_per_s: float
    good_fraction: float | None
    good_per_s: float | None
    missed: dict[str, float]
    refused: dict[str, int]
    cut: int
    preemptions: int
    reused_fraction: float
    saturation_per_s: float
    load: float | None
    stability: Stability
    pools: dict[str, PoolUse]


def simulate(
    pools: Pools, traffic: TrafficSpec, draw: Draw, targets: Sequence[Target] = ()
) -> Simulation:
    """``pools`` under the requests that are drawn of ``traffic``.

    Raises:
        InputError: the trace cannot be read, two pools are to run in a closed loop, or not one
            request can be served.
    """
    requests = draw_requests(traffic, draw)
    saturation_per_s = saturation_rate_per_s(requests, pools)
    replicas = _serve(requests, pools, traffic.concurrency, draw.request_s)
    window = window_of(requests)
    if window is None:
        why = next(one.refused for one in requests if one.refused)
        raise InputError(f"not one of {len(requests)} requests can be served: {why}")
    offered_per_s = None if traffic.concurrency else _offered_per_s(requests)
    load = None if offered_per_s is None else offered_per_s / saturation_per_s
    return _found(
        requests,
        window,
        replicas,
        pools,
        targets,
        offered_per_s=offered_per_s,
        saturation_per_s=saturation_per_s,
        load=load,
        stability="closed_loop" if traffic.concurrency else stability_of(load),
    )


def stability_of(load: float | None) -> Stability:
    """What the load of an open loop says of latencies."""
    if load is None:
        return "unknown"
    if load >= 1:
        return "overloaded"
    return "near_saturation" if load >= NEAR_SATURATION else "stable"


def _serve(
    requests: Sequence[Request], pools: Pools, concurrency: int | None, request_s: float
) -> dict[str, list[Replica]]:
    """The replicas of each pool after all requests; those that gave output are the last."""
    if isinstance(pools, TwoPools):
        if concurrency:
            raise InputError(
                "a closed loop (arrivals: closed) is simulated for one pool only; give a rate"
            )
        first, second = serve_disaggregated(requests, pools)
        return {"prefill": first, "decode": second}
    if concurrency is None:
        return {"replicas": serve_open_loop(requests, pools)}
    served = serve_closed_loop(requests, pools, concurrency=concurrency, request_s=request_s)
    return {"replicas": served}


def _offered_per_s(requests: Sequence[Request]) -> float | None:
    span_s = requests[-1].arrival_s - requests[0].arrival_s
    return (len(requests) - 1) / span_s if span_s > 0 else None


def _found(
    requests: Sequence[Request],
    window: Window,
    replicas: dict[str, list[Replica]],
    pools: Pools,
    targets: Sequence[Target],
    *,
    offered_per_s: float | None,
    saturation_per_s: float,
    load: float | None,
    stability: Stability,
) -> Simulation:
    times = [_times(one) for one in window.requests]
    gaps = gaps_in(list(replicas.values())[-1], window)
    latencies = latency_percentiles(times, gaps)
    ended = [one for one in requests if window.holds(one.finished_s)]
    served_per_s = len(ended) / window.seconds
    good = sum(is_good(one, targets) for one in times) / len(times) if targets else None
    prompts = sum(one.prompt_tokens for one in window.requests)
    return Simulation(
        latencies=latencies,
        measured=len(times),
        offered_per_s=offered_per_s,
        served_per_s=served_per_s,
        output_tokens_per_s=sum(one.output_tokens for one in ended) / window.seconds,
        good_fraction=good,
        good_per_s=None if good is None else good * served_per_s,
        missed=missed_targets(latencies, targets, times=times, gaps=gaps),
        refused=dict(Counter(one.refused for one in requests if one.refused)),
        cut=sum(one.is_cut for one in requests),
        preemptions=sum(one.preemptions for one in requests),
        reused_fraction=sum(one.reused_tokens for one in window.requests) / prompts,
        saturation_per_s=saturation_per_s,
        load=load,
        stability=stability,
        pools={
            name: pool_use(of_pool, _scheduler_pool(pools, name).scheduler, window)
            for name, of_pool in replicas.items()
        },
    )


def _scheduler_pool(pools: Pools, name: str) -> Pool:
    if isinstance(pools, TwoPools):
        return pools.prefill if name == "prefill" else pools.decode
    return pools


def _times(request: Request) -> RequestTimes:
    assert request.first_token_s is not None and request.finished_s is not None
    return RequestTimes(
        sent_s=request.arrival_s,
        first_token_s=request.first_token_s,
        finished_s=request.finished_s,
        output_tokens=request.output_tokens,
    )
