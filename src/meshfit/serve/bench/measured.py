"""What a benchmark shows: latencies by the definitions of ``serve.asked.latencies``, rates, the client's lag."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshfit.record.serving import ServedRequest, ServingRecord
from meshfit.serve.asked.latencies import (
    Gaps,
    Percentiles,
    RequestTimes,
    is_good,
    latency_percentiles,
    missed_targets,
    percentile,
)
from meshfit.serve.asked.traffic import Metric, Target

_DRIFT = 1.5
"""Median first token of the last third over that of the first: beyond, the queue was growing."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Of one benchmark, after its warm-up.

    Attributes:
        latencies: metric -> percentile -> seconds.
        failed: why requests failed -> how many.
        offered_per_s, served_per_s, output_tokens_per_s: requests as planned, and what was completed.
        good_fraction: of all requests, failed ones included, those within all targets; None without
            targets.
        missed: targets that are not met -> what was found, in seconds.
        client_lag_s: by which requests were sent late, 99th percentile.
        is_stationary: whether first tokens came no later in the end than in the beginning.
    """

    latencies: dict[Metric, Percentiles]
    served: int
    failed: dict[str, int]
    offered_per_s: float | None
    served_per_s: float
    output_tokens_per_s: float
    good_fraction: float | None
    missed: dict[str, float]
    client_lag_s: float
    is_stationary: bool


def measured(record: ServingRecord, targets: Sequence[Target] = ()) -> Measured:
    """What the requests of a record show."""
    asked = asked_after_warm_up(record)
    served = [one for one in asked if not one.error]
    times = [request_times(one) for one in served]
    gaps_s = np.array([gap for one in served for gap in one.gaps_s])
    gaps = Gaps(seconds=gaps_s, counts=np.ones_like(gaps_s))
    latencies = latency_percentiles(times, gaps)
    seconds = span_s(asked, times)
    good = [is_good(one, targets) for one in times]
    return Measured(
        latencies=latencies,
        served=len(served),
        failed=dict(Counter(one.error for one in asked if one.error)),
        offered_per_s=_offered_per_s(asked),
        served_per_s=len(served) / seconds if served else 0.0,
        output_tokens_per_s=sum(one.output_tokens for one in served) / seconds if served else 0.0,
        good_fraction=sum(good) / len(asked) if targets else None,
        missed=missed_targets(latencies, targets, times=times, gaps=gaps),
        client_lag_s=percentile([one.sent_s - one.planned_s for one in asked], 99),
        is_stationary=_is_stationary(times),
    )


def asked_after_warm_up(record: ServingRecord) -> tuple[ServedRequest, ...]:
    """The requests that count; all where there are none after the warm-up."""
    return record.requests[record.warm_up :] or record.requests


def request_times(request: ServedRequest) -> RequestTimes:
    """Of a request that did not fail."""
    assert request.first_token_s is not None and request.finished_s is not None
    return RequestTimes(
        sent_s=request.sent_s,
        first_token_s=request.first_token_s,
        finished_s=request.finished_s,
        output_tokens=request.output_tokens,
    )


def span_s(asked: Sequence[ServedRequest], times: Sequence[RequestTimes]) -> float:
    """Seconds from the first sending to the last end."""
    ends_s = max((one.finished_s for one in times), default=asked[-1].sent_s)
    return max(ends_s - asked[0].sent_s, 1e-9)


def _offered_per_s(asked: Sequence[ServedRequest]) -> float | None:
    planned_s = asked[-1].planned_s - asked[0].planned_s
    return (len(asked) - 1) / planned_s if planned_s > 0 else None


def _is_stationary(times: Sequence[RequestTimes]) -> bool:
    third = len(times) // 3
    if third < 3:
        return True
    first = np.median([one.ttft_s for one in times[:third]])
    last = np.median([one.ttft_s for one in times[-third:]])
    return bool(last <= _DRIFT * first)
