"""What traffic does to one replica: how many requests are in flight, and the latencies they see."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from meshfit.serve.asked.traffic import Metric, Target, TrafficSpec
from meshfit.serve.load.steady import SteadyState, steady_state
from meshfit.serve.time.clock import ReplicaClock

POINTS = 24
"""Numbers of requests in flight between one and all that fit, spaced evenly in their logarithm."""
DEFAULT_PERCENTILE = 95.0


@dataclass(frozen=True, kw_only=True)
class TrafficLoad(ABC):
    """What serves under traffic: what it ends, and the latencies that requests see.

    Attributes:
        in_flight: requests computed at once, on average.
        load: requests offered over those that could end at most; 1 and above: it cannot keep up.
        ttft_s, tpot_s: means, of requests of median length; decode_s: a step of decoding alone.
        prompt_s: what one prompt adds to the steps it is computed in.
        requests_per_s, output_tokens_per_s: that end.
    """

    in_flight: float
    load: float
    ttft_s: float
    tpot_s: float
    decode_s: float
    prompt_s: float
    requests_per_s: float
    output_tokens_per_s: float
    traffic: TrafficSpec

    @property
    @abstractmethod
    def prompts_busy(self) -> float:
        """Share of time in which prompts are computed: what other prompts wait behind."""

    @abstractmethod
    def gap_s(self, fraction: float) -> float:
        """Seconds between two tokens that a fraction of gaps do not exceed."""

    @property
    def keeps_up(self) -> bool:
        """Whether requests end as fast as they come."""
        return self.load < 1

    def latency_s(self, metric: Metric, percentile: float) -> float:
        """Seconds that ``percentile`` of requests (of gaps, for ``itl``) do not exceed; infinite where
        they cannot keep up.

        First tokens: ``first_token_percentile_s``. In closed form; `meshfit serve simulate` follows
        requests.
        """
        if not self.keeps_up:
            return math.inf
        fraction = percentile / 100
        match metric:
            case "tpot":
                return self.tpot_s
            case "itl":
                return self.gap_s(fraction)
            case "ttft":
                return self._first_token_s(fraction)
            case "e2e":
                tokens = self.traffic.output.quantile_tokens(fraction)
                return self._first_token_s(0.5) + (tokens - 1) * self.tpot_s

    def _first_token_s(self, fraction: float) -> float:
        return first_token_percentile_s(
            self.traffic,
            fraction,
            mean_s=self.ttft_s,
            prompt_s=self.prompt_s,
            busy=self.prompts_busy,
        )

    def meets(self, target: Target) -> bool:
        """Whether a latency target is met."""
        return self.latency_s(target.metric, target.percentile) <= target.limit_s


@dataclass(frozen=True, kw_only=True)
class ReplicaLoad(TrafficLoad):
    """One replica under its part of the traffic.

    Attributes:
        mixed_s: a step with a prompt's chunk in it; mixed_share: of steps that hold one.
    """

    mixed_s: float
    mixed_share: float

    @property
    def prompts_busy(self) -> float:
        return self.requests_per_s * self.prompt_s

    def gap_s(self, fraction: float) -> float:
        """A step with a prompt in it, where those are more than the percentile leaves out."""
        return self.mixed_s if self.mixed_share > 1 - fraction else self.decode_s


def first_token_percentile_s(
    traffic: TrafficSpec, fraction: float, *, mean_s: float, prompt_s: float, busy: float
) -> float:
    """Seconds to the first token that a fraction of requests do not exceed: by how much longer their
    prompts are, and behind other prompts by the wait of a queue with one server, ``P(wait > t) = rho
    exp(-t (1 - rho) / prompt)``.

    Args:
        mean_s: of a prompt of median length; prompt_s: what that takes of the server.
        busy: share of time in which the server computes prompts.
    """
    longer = traffic.prompt.quantile_tokens(fraction) / traffic.prompt.median_tokens
    busy = min(busy, 0.999)
    waited_s = 0.0
    if traffic.rate_per_s is not None and busy > 1 - fraction:
        waited_s = prompt_s / (1 - busy) * math.log(busy / (1 - fraction))
    return mean_s + (longer - 1) * prompt_s + waited_s


def replica_load(
    clock: ReplicaClock,
    traffic: TrafficSpec,
    *,
    replicas: int,
    capacity: int,
    step_tokens: int,
) -> ReplicaLoad:
    """One of ``replicas`` equal ones under ``traffic``.

    In an open loop as many requests are in flight as end at the rate at which they come; where the
    replica cannot end so many, all that fit are.
    """
    prompt = max(traffic.prompt.mean_tokens - traffic.shared_prefix_tokens, 1.0)
    output = max(traffic.output.mean_tokens, 1.0)
    numbers = np.unique(np.geomspace(1.0, max(capacity, 1), POINTS))
    if traffic.concurrency is not None:
        numbers = np.array([traffic.concurrency / replicas])
    steady = steady_state(
        clock,
        concurrency=numbers,
        capacity=float(capacity),
        prompt_tokens=prompt,
        output_tokens=output,
        step_tokens=step_tokens,
    )
    ends = np.maximum.accumulate(steady.requests_per_s)
    offered = float(ends[-1]) if traffic.rate_per_s is None else traffic.rate_per_s / replicas
    load = 0.0 if traffic.rate_per_s is None else offered / float(ends[-1])
    at = float(np.interp(offered, ends, np.arange(len(numbers), dtype=np.float64)))
    ending = min(offered, float(ends[-1]))
    tpot_s = _between(steady, "tpot_s", at)
    return ReplicaLoad(
        in_flight=_between(steady, "in_flight", at),
        load=load,
        ttft_s=_between(steady, "ttft_s", at) + _between(steady, "waiting_s", at),
        tpot_s=tpot_s,
        decode_s=_between(steady, "decode_s", at),
        mixed_s=_between(steady, "mixed_s", at),
        prompt_s=_between(steady, "prompt_s", at),
        mixed_share=min(1.0, ending * tpot_s),
        requests_per_s=ending,
        output_tokens_per_s=ending * output,
        traffic=traffic,
    )


def _between(steady: SteadyState, name: str, index: float) -> float:
    """A figure between two points of a curve."""
    values = getattr(steady, name)
    return float(np.interp(index, np.arange(len(values), dtype=np.float64), values))
