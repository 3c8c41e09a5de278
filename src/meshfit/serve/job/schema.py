"""The file of a serving job as a person writes it: ``job.yaml`` with ``workload.kind: serving``.

Pydantic guards it; ``serve.job.read`` turns it into a ``ServingJob``.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from meshfit.job.schema import Count, Number, Strict
from meshfit.serve.asked.routing import Policy
from meshfit.serve.asked.traffic import Arrivals, Metric
from meshfit.serve.setting.quantized import AS_STORED

Quantity = str | Number
CacheType = Literal["auto", "fp8"]


class LengthsFile(Strict):
    median: Annotated[Number, Field(ge=1)]
    """Tokens; lengths are lognormal."""
    p99: Annotated[Number, Field(ge=1)] | None = None
    """Tokens of the 99th percentile; None: every request has the median."""


class TrafficFile(Strict):
    rate: Quantity | None = None
    """Requests sent whatever the server does: ``20/s``, or a number a second."""
    concurrency: Count | None = None
    """In place of ``rate``: requests in flight, the next sent when one ends."""
    arrivals: Arrivals = "poisson"
    """How requests of a rate arrive."""
    burstiness: Annotated[Number, Field(gt=0)] = 1.0
    """Squared coefficient of variation of the gaps between arrivals; 1: Poisson."""
    prompt: LengthsFile | Count | None = None
    """Tokens of a prompt."""
    output: LengthsFile | Count | None = None
    """Tokens of an output."""
    shared_prefix: Annotated[int, Field(ge=0, strict=True)] = 0
    """Leading tokens of every prompt that all requests share."""
    trace: str | None = None
    """In place of rate and lengths: file of timestamps and lengths, from the job's folder."""


class QuantizationFile(Strict):
    weights: str = AS_STORED
    """As the model stores them, or quantised: ``bf16``, ``fp8``, ``fp8_block``, ``awq``,
    ``gptq``, ``gptq_int8``, ``nvfp4``, ``mxfp4``, ``int4_experts``."""
    kv_cache: CacheType = "auto"
    """Elements of the cache; ``auto``: as the model computes."""


class SpeculationFile(Strict):
    draft_tokens: Annotated[int, Field(ge=1, le=64, strict=True)]
    """Tokens that a draft proposes at a time."""
    acceptance: Annotated[Number, Field(ge=0, le=1)]
    """Probability that one of them is accepted."""


class ServingWorkloadFile(Strict):
    kind: Literal["serving"]
    """Of this file."""
    traffic: TrafficFile
    """Requests of all replicas together."""
    targets: dict[Metric, dict[str, Quantity]] = Field(default={})
    """Limits of ``ttft``, ``itl``, ``tpot`` and ``e2e`` by percentile: ``{ttft: {p95: 500 ms}}``."""
    quantization: QuantizationFile = QuantizationFile()
    """What weights and cache are served in."""
    speculation: SpeculationFile | None = None
    """Speculative decoding; None: none."""


class ServingLayoutFile(Strict):
    replicas: Count = 1
    """Copies of the model, each with its own queue."""
    tp: Count = 1
    """Tensor parallel degree."""
    pp: Count = 1
    """Pipeline ranks."""
    ep: Count = 1
    """Expert parallel degree, of the same ranks."""
    attention_dp: Count = 1
    """Ranks of a replica that attend to different requests."""


class ServingEngineFile(Strict):
    """Settings of the engine; what is left out is its own default."""

    memory_fraction: Annotated[Number, Field(gt=0, le=1)] | None = None
    """Share of the accelerator's memory that the engine takes."""
    max_sequences: Count | None = None
    """Requests in one batch."""
    max_batched_tokens: Count | None = None
    """Tokens of one step."""


class JobEngineFile(ServingEngineFile):
    eager: bool = False
    """Whether the host launches every kernel, instead of captured graphs."""


class PoolFile(ServingLayoutFile, ServingEngineFile):
    """A pool with settings of its own; what is left out is the job's."""


class TwoPoolsFile(Strict):
    prefill: PoolFile
    """The pool that reads prompts."""
    decode: PoolFile
    """The pool that makes output."""


class ServingRunFile(Strict):
    requests: Count = 2000
    """Drawn of the traffic for a simulation or a benchmark."""
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Of that draw."""
    routing: Policy = "round_robin"
    """Which replica a request goes to."""
    ready: Quantity = "10 min"
    """That a server may take to answer: ``10 min``, or seconds."""
    deadline: Quantity = "5 min"
    """That one request may take: ``5 min``, or seconds."""


class ServingJobFile(Strict):
    schema_version: Literal[1]
    """Of this file."""
    name: str | None = None
    """Of the run folder; None: the file's or folder's."""
    model: str
    """A name of ``meshfit catalogue models``, a config.json, a folder that holds one (and weights),
    or ORG/NAME in the local Hub cache."""
    workload: ServingWorkloadFile
    """What is asked of the servers."""
    cluster: str | dict[str, Any] = "here"
    """As in a training job; ``auto x H100-SXM``: the fewest accelerators that meet the targets."""
    engine: str | list[str] = "vllm"
    """Engines to consider."""
    serving: JobEngineFile = JobEngineFile()
    """Settings of the engine."""
    layout: ServingLayoutFile | TwoPoolsFile | None = None
    """The one to simulate or to bench: one pool, or two apart; ``--layout`` changes keys of it."""
    layouts: list[ServingLayoutFile | TwoPoolsFile] = Field(default=[])
    """Those that ``serve fit`` runs; none: ``layout``."""
    baseline: str | None = None
    """Folder of unquantised weights, whose output is compared with; None: those of ``model``."""
    run: ServingRunFile = ServingRunFile()
    """How simulations and benchmarks are done."""
    price: str | None = None
    """Of one accelerator: ``2.5 USD/GPU-h``."""
