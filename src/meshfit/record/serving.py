"""What a benchmark of a server measured, request by request."""

from dataclasses import dataclass, field
from typing import Any, Literal

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
class ServerClaims:
    """Of one rank, as a server's log has it; None where it says nothing.

    Attributes:
        kv_tokens: that the KV cache of the replica holds.
        weights_bytes, graph_bytes: to the hundredth of a GiB that is printed.
    """

    kv_tokens: int | None = None
    weights_bytes: int | None = None
    graph_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class ServerMemory:
    """Of one replica after the benchmark.

    Attributes:
        claims: what the server says; held_bytes: what ``counter`` says that its processes hold.
    """

    claims: ServerClaims
    held_bytes: int
    counter: str


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
        memory: of the first replica; None where it was not started here.
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
    memory: ServerMemory | None = None


@dataclass(frozen=True, kw_only=True)
class GreedyOutput:
    """Tokens generated for one prompt, and the natural logarithm of each one's probability."""

    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class OutputParity:
    """Outputs of a deployment against those of the baseline.

    Attributes:
        share_equal: tokens before the first unequal one of each prompt, of all.
        first_divergence: index of the earliest unequal token of any prompt; None where all agree.
        largest_difference: of log-probabilities, up to and with a first unequal token.
    """

    ok: bool
    prompts: int
    share_equal: float
    first_divergence: int | None
    largest_difference: float
    tolerance: float


@dataclass(frozen=True, kw_only=True)
class BaselineOutputs:
    """What the baseline of a fit generates."""

    schema_version: int = SCHEMA_VERSION
    plan_hash: str
    outputs: tuple[GreedyOutput, ...]


ServingOutcome = Literal["ok", "parity_failed", "requests_failed", "launch_error"]


@dataclass(frozen=True, kw_only=True)
class ServingRow:
    """One layout of a fit on real servers, whatever became of it.

    Attributes:
        layout: keys that are not 1; ``accelerators`` that it takes.
        bench: measured and predicted, as ``serve bench --json`` prints them; None where it never ran.
        failure: why it is not ``ok``, empty where it is.
    """

    schema_version: int = SCHEMA_VERSION
    plan_hash: str
    label: str
    layout: dict[str, Any]
    accelerators: int
    outcome: ServingOutcome
    started_at: str
    seconds: float
    parity: OutputParity | None = None
    bench: dict[str, Any] | None = None
    failure: str = ""
