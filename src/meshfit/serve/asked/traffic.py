"""What is asked of a deployment: requests as they arrive, and the latencies they must see."""

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Literal

Arrivals = Literal["poisson", "bursts", "constant", "closed", "trace"]
"""``closed``: a fixed number of requests in flight, the next sent when one ends; the others are open
loop, sent whatever the server does."""

Metric = Literal["ttft", "itl", "tpot", "e2e"]
"""``ttft``: first token less send. ``itl``: each gap between tokens of a stream. ``tpot``: (end to
end - ttft) / (tokens - 1), one a request. ``e2e``: last token less send."""

Z_P99 = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True, kw_only=True)
class LengthSpec:
    """Tokens of a prompt or an output: lognormal through a median and a 99th percentile.

    ``p99_tokens`` equal to ``median_tokens``: every request has that length.
    """

    median_tokens: float
    p99_tokens: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.log(self.p99_tokens / self.median_tokens) / Z_P99

    @property
    def mean_tokens(self) -> float:
        """``median exp(sigma^2 / 2)``."""
        return self.median_tokens * math.exp(self.sigma**2 / 2)

    def quantile_tokens(self, fraction: float) -> float:
        """The length that ``fraction`` of requests do not exceed."""
        return self.median_tokens * math.exp(self.sigma * NormalDist().inv_cdf(fraction))


@dataclass(frozen=True, kw_only=True)
class TrafficSpec:
    """Requests of all replicas together.

    Attributes:
        rate_per_s: requests a second on average; None in a closed loop.
        concurrency: requests in flight in a closed loop; None in an open one.
        burstiness: squared coefficient of variation of the gaps between arrivals (1: Poisson).
        shared_prefix_tokens: leading tokens of every prompt that all requests share.
        trace: file of timestamps and lengths, which then replace the lengths above.
    """

    prompt: LengthSpec
    output: LengthSpec
    arrivals: Arrivals = "poisson"
    rate_per_s: float | None = None
    concurrency: int | None = None
    burstiness: float = 1.0
    shared_prefix_tokens: int = 0
    trace: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Target:
    """A percentile of a latency must not exceed ``limit_s``: ``ttft p95 500 ms``."""

    metric: Metric
    percentile: float
    limit_s: float

    @property
    def name(self) -> str:
        """``ttft.p95``."""
        return f"{self.metric}.p{self.percentile:g}"
