"""What a benchmark of a server measured, request by request."""

from dataclasses import dataclass, field
from typing import Any

from meshfit.record.schema import SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class ServedRequest:
    """One request of a benchmark. Times are seconds since the benchmark began.

    Attributes:
        planned_s: when it was to be sent; sent_s: when it was (their difference is the client's lag).
        first_token_s, finished_s: None where it failed.
        output_tokens: that came back.
        gaps_s: between arrivals of tokens, as the stream had them; several tokens of one event are
            one arrival.
        error: why it failed, empty where it did not.
    """

    number: int
    prompt_tokens: int
    output_tokens: int
    planned_s: float
    sent_s: float
    first_token_s: float | None = None
    finished_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class ServingRecord:
    """One benchmark.

    Attributes:
        started_at: UTC, ISO 8601.
        client: what drove it, with its version; loop: ``open`` (sent whatever the server does) or
            ``closed``.
        server: what answered, in words.
        router: how requests were shared out over several servers.
        layout: of the deployment, keys that are not 1.
        traffic: arrivals, rate and lengths as asked for.
        warm_up: first requests that are left out of percentiles.
    """

    schema_version: int = SCHEMA_VERSION
    started_at: str
    client: str
    loop: str
    server: str
    router: str
    layout: dict[str, Any]
    traffic: dict[str, Any]
    seed: int
    warm_up: int
    requests: tuple[ServedRequest, ...]
    environment: dict[str, Any] = field(default_factory=dict)
