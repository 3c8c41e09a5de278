"""Latencies of requests, simulated or measured, by the same definitions.

``ttft`` is the first token less the sending; ``itl`` one gap between tokens of a stream; ``tpot``
(end to end - ttft) / (tokens - 1), one value a request, none where there is one token; ``e2e`` the
last token less the sending.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshfit.serve.asked.traffic import Metric, Target

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
METRICS: tuple[Metric, ...] = ("ttft", "itl", "tpot", "e2e")

Percentiles = dict[str, float]
"""``p50`` to ``p99`` -> seconds."""


@dataclass(frozen=True, kw_only=True)
class RequestTimes:
    """One served request on one clock; ``output_tokens`` that it got."""

    sent_s: float
    first_token_s: float
    finished_s: float
    output_tokens: int

    @property
    def ttft_s(self) -> float:
        return self.first_token_s - self.sent_s

    @property
    def e2e_s(self) -> float:
        return self.finished_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        later = self.output_tokens - 1
        return (self.finished_s - self.first_token_s) / later if later > 0 else None


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """Gaps between tokens: ``counts`` of them lasted ``seconds`` each."""

    seconds: NDArray[np.float64]
    counts: NDArray[np.float64]


def percentile(values: ArrayLike, percent: float, counts: ArrayLike | None = None) -> float:
    """The smallest value that ``percent`` of all do not exceed (nearest rank), each value counting
    ``counts`` times. There is at least one."""
    ordered = np.asarray(values, dtype=np.float64)
    weights = np.ones_like(ordered) if counts is None else np.asarray(counts, dtype=np.float64)
    order = np.argsort(ordered)
    reached = np.cumsum(weights[order])
    place = np.searchsorted(reached, percent / 100 * reached[-1] * (1 - 1e-12))
    return float(ordered[order][min(int(place), len(ordered) - 1)])


def percentiles(values: ArrayLike, counts: ArrayLike | None = None) -> Percentiles:
    """Every one of ``PERCENTILES``; empty where there are no values."""
    if np.size(np.asarray(values)) == 0:
        return {}
    return {f"p{percent:g}": percentile(values, percent, counts) for percent in PERCENTILES}


def latency_percentiles(times: Sequence[RequestTimes], gaps: Gaps) -> dict[Metric, Percentiles]:
    """The four metrics over requests and gaps."""
    return {
        "ttft": percentiles([one.ttft_s for one in times]),
        "itl": percentiles(gaps.seconds, gaps.counts),
        "tpot": percentiles([one.tpot_s for one in times if one.tpot_s is not None]),
        "e2e": percentiles([one.e2e_s for one in times]),
    }


def is_good(times: RequestTimes, targets: Iterable[Target]) -> bool:
    """Whether a request is within every target's limit. A limit on gaps holds for their mean."""
    for target in targets:
        metric = "tpot" if target.metric == "itl" else target.metric
        seconds = getattr(times, f"{metric}_s")
        if seconds is not None and seconds > target.limit_s:
            return False
    return True


def missed_targets(
    found: Mapping[Metric, Percentiles],
    targets: Iterable[Target],
    *,
    times: Sequence[RequestTimes],
    gaps: Gaps,
) -> dict[str, float]:
    """Targets that are not met -> the percentile found, in seconds."""
    missed = {}
    for target in targets:
        seconds = found[target.metric].get(f"p{target.percentile:g}")
        if seconds is None:
            seconds = _other_percentile(target, times, gaps)
        if seconds is not None and seconds > target.limit_s:
            missed[target.name] = seconds
    return missed


def _other_percentile(target: Target, times: Sequence[RequestTimes], gaps: Gaps) -> float | None:
    """One that is not among ``PERCENTILES``; None where there are no values."""
    if target.metric == "itl":
        if gaps.seconds.size == 0:
            return None
        return percentile(gaps.seconds, target.percentile, gaps.counts)
    values = [getattr(one, f"{target.metric}_s") for one in times]
    known = [value for value in values if value is not None]
    return percentile(known, target.percentile) if known else None
