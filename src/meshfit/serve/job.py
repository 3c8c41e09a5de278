"""A serving job: ``job.yaml`` with ``workload.kind: serving``, read and resolved."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from meshfit.cluster.files import read_topology
from meshfit.cluster.topology import AcceleratorSpec, Topology
from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.files import validate
from meshfit.job.budget import positive_duration, read_price
from meshfit.job.found import FoundJob
from meshfit.job.key_values import key_values
from meshfit.job.kinds import read_job_mapping
from meshfit.job.read import given_weights
from meshfit.job.schema import Count, Number, Strict
from meshfit.profile import EngineProfile
from meshfit.serve.budget import MOST_OF_DEVICE, ServingBudget, serving_budget
from meshfit.serve.layout import (
    Deployment,
    DisaggregatedLayout,
    PoolSettings,
    ServingLayout,
)
from meshfit.serve.quantized import AS_STORED, served_as
from meshfit.serve.simulate.routing import Policy
from meshfit.serve.simulate.speculation import SpeculationSpec
from meshfit.serve.traffic import Arrivals, LengthSpec, Metric, Target, TrafficSpec
from meshfit.units import parse_duration
from meshfit.workload.model import ModelSpec
from meshfit.workload.models import read_model

Quantity = str | Number
CacheType = Literal["auto", "fp8"]

WORKLOAD_EXAMPLE = "workload: {kind: serving, traffic: {rate: 20/s, prompt: {median: 900, p99: 8000}, output: 200}}"

_RATE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*/\s*(s|min|h)\s*")
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
_AUTO = re.compile(r"\s*auto\s*x\s*(.+?)\s*", re.IGNORECASE)


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


@dataclass(frozen=True, kw_only=True)
class ServingRunSpec:
    """How simulations and real benchmarks are done.

    Attributes:
        requests: drawn of the traffic, with ``seed``.
        ready_s: that a server may take to answer; deadline_s: that one request may take.
    """

    requests: int
    seed: int
    routing: Policy
    ready_s: float
    deadline_s: float


@dataclass(frozen=True, kw_only=True)
class ServingJob:
    """One serving job, read and resolved.

    Attributes:
        weights: a folder with the model's weights; None where there are none.
        baseline_weights: unquantised ones, whose output that of ``weights`` is compared with; None:
            the same.
        targets: latencies that must be met together; none where nothing is asked.
        cache_element_bytes: of one element of the KV cache; None: as the model computes.
        topology: where it is to run; None where the fewest accelerators are to be found
            (``cluster: auto x NAME``), which ``accelerator`` names.
        profiles: of the engines that are considered.
        memory_fraction, max_sequences, step_tokens: None: the engine's default.
        eager: whether the host launches every kernel, instead of captured graphs.
        price_per_device_h: in ``currency``; None where the job has no price.
        layout: the one to simulate or to bench; layouts: those that ``serve fit`` is told to run.
    """

    name: str
    model: ModelSpec
    weights: Path | None
    baseline_weights: Path | None
    traffic: TrafficSpec
    targets: tuple[Target, ...]
    cache_element_bytes: float | None
    speculation: SpeculationSpec | None
    topology: Topology | None
    accelerator: str
    profiles: tuple[EngineProfile, ...]
    memory_fraction: float | None
    max_sequences: int | None
    step_tokens: int | None
    eager: bool
    layout: Deployment | None
    layouts: tuple[Deployment, ...]
    run: ServingRunSpec
    price_per_device_h: float | None = None
    currency: str = "USD"

    @property
    def longest_tokens(self) -> int:
        """Prompt and output of the longest request: the 99th percentiles of both."""
        return round(self.traffic.prompt.p99_tokens + self.traffic.output.p99_tokens)

    def budget(
        self,
        profile: EngineProfile,
        accelerator: AcceleratorSpec,
        settings: PoolSettings | None = None,
    ) -> ServingBudget:
        """Of an engine on an accelerator: a pool's settings before the job's, and the engine's defaults
        for the rest."""
        own = settings or PoolSettings()
        return serving_budget(
            profile,
            accelerator,
            memory_fraction=own.memory_fraction or self.memory_fraction,
            cache_element_bytes=self.cache_element_bytes or 2.0,
            step_tokens=own.step_tokens or self.step_tokens,
            max_sequences=own.max_sequences or self.max_sequences,
            has_graphs=not self.eager,
        )


def read_serving_job(path: Path, *, layout: str | None = None) -> ServingJob:
    """The serving job that ``path`` (a file, or a folder with a job.yaml) describes.

    Args:
        layout: ``replicas=2,tp=4``: overrides keys of the job's layout.

    Raises:
        InputError: anything wrong in the file or in what it names.
    """
    found = FoundJob.at(path)
    document = read_job_mapping(found.path, "serving")
    if "workload" not in document:
        raise InputError(f"{found.path} has no workload; write {WORKLOAD_EXAMPLE}")
    file = validate(ServingJobFile, document, str(found.path))
    base = found.base
    model = served_as(read_model(file.model, base), file.workload.quantization.weights)
    topology, accelerator = _cluster(file.cluster, base)
    price, currency = read_price(file.price, "price")
    engines = [file.engine] if isinstance(file.engine, str) else file.engine
    if not engines:
        raise InputError("engine names none; write one or more of vllm, sglang and tensorrt_llm")
    return ServingJob(
        name=file.name or found.name,
        model=model,
        weights=given_weights(file.model, base),
        baseline_weights=_baseline_weights(file.baseline, base),
        traffic=_within_context(_traffic(file.workload.traffic, base), model),
        targets=_targets(file.workload.targets),
        cache_element_bytes=1.0 if file.workload.quantization.kv_cache == "fp8" else None,
        speculation=_speculation(file.workload.speculation),
        topology=topology,
        accelerator=accelerator,
        profiles=tuple(engine_profile(name) for name in engines),
        memory_fraction=_memory_fraction(file.serving.memory_fraction),
        max_sequences=file.serving.max_sequences,
        step_tokens=file.serving.max_batched_tokens,
        eager=file.serving.eager,
        layout=_layout_asked(file.layout, layout),
        layouts=tuple(_layout(one) for one in file.layouts),
        run=_run(file.run),
        price_per_device_h=price,
        currency=currency,
    )


def _baseline_weights(name: str | None, base: Path) -> Path | None:
    if name is None:
        return None
    if (folder := given_weights(name, base)) is None:
        raise InputError(f"baseline {name!r} is no folder with weights (*.safetensors)")
    return folder


def _cluster(value: str | dict[str, Any], base: Path) -> tuple[Topology | None, str]:
    """The cluster, None where the fewest accelerators are to be found; and the accelerator's name."""
    if isinstance(value, str) and (match := _AUTO.fullmatch(value)):
        name = match.group(1)
        return None, read_topology(f"1 {name}", base).accelerator.name
    topology = read_topology(value, base)
    return topology, topology.accelerator.name


def _traffic(file: TrafficFile, base: Path) -> TrafficSpec:
    if file.trace is not None:
        given = [key for key in ("rate", "prompt", "output") if getattr(file, key) is not None]
        if given:
            raise InputError(
                f"traffic.trace says arrivals and lengths; leave out {', '.join(given)}"
            )
        anything = LengthSpec(median_tokens=1, p99_tokens=1)
        return TrafficSpec(
            prompt=anything, output=anything, arrivals="trace", trace=base / file.trace
        )
    if (file.rate is None) == (file.concurrency is None):
        raise InputError(
            "traffic takes one of rate (20/s: sent whatever the server does) and concurrency (so many "
            "requests in flight)"
        )
    return TrafficSpec(
        prompt=_lengths(file.prompt, "prompt"),
        output=_lengths(file.output, "output"),
        arrivals="closed" if file.concurrency else file.arrivals,
        rate_per_s=None if file.rate is None else _rate_per_s(file.rate),
        concurrency=file.concurrency,
        burstiness=file.burstiness,
        shared_prefix_tokens=file.shared_prefix,
    )


def _within_context(traffic: TrafficSpec, model: ModelSpec) -> TrafficSpec:
    """The traffic, of which at least half the prompts leave room for a token of output."""
    longest = model.max_position_embeddings
    for key, tokens in (
        ("prompt: median", traffic.prompt.median_tokens),
        ("shared_prefix", traffic.shared_prefix_tokens),
    ):
        if tokens >= longest:
            raise InputError(
                f"traffic.{key} {tokens:g} leaves no token of output in the model's longest context, "
                f"{longest} tokens"
            )
    return traffic


def _rate_per_s(value: Quantity) -> float:
    if isinstance(value, str):
        match = _RATE.fullmatch(value)
        if match is None:
            raise InputError(f"traffic.rate {value!r} is no rate; write it like 20/s")
        value = float(match.group(1)) / parse_duration(f"1 {match.group(2)}")
    if value <= 0:
        raise InputError(f"traffic.rate {value:g} must be greater than 0")
    return value


def _lengths(value: LengthsFile | int | None, key: str) -> LengthSpec:
    if value is None:
        raise InputError(f"traffic.{key} is missing; write {{median: 900, p99: 8000}} or a length")
    if isinstance(value, int):
        return LengthSpec(median_tokens=value, p99_tokens=value)
    p99 = value.median if value.p99 is None else value.p99
    if p99 < value.median:
        raise InputError(f"traffic.{key}: p99 {p99:g} is below the median {value.median:g}")
    return LengthSpec(median_tokens=value.median, p99_tokens=p99)


def _targets(file: dict[Metric, dict[str, Quantity]]) -> tuple[Target, ...]:
    targets = []
    for metric, limits in file.items():
        for name, limit in limits.items():
            match = _PERCENTILE.fullmatch(name)
            if match is None or not 0 < float(match.group(1)) < 100:
                raise InputError(f"targets.{metric}: {name!r} is no percentile; write p95: 500 ms")
            limit_s = positive_duration(limit, f"targets.{metric}.{name}")
            percentile = float(match.group(1))
            targets.append(Target(metric=metric, percentile=percentile, limit_s=limit_s))
    return tuple(targets)


def _memory_fraction(value: float | None) -> float | None:
    if value is not None and value > MOST_OF_DEVICE:
        raise InputError(
            f"serving.memory_fraction {value:g} leaves no room for graphs and other processes; at "
            f"most {MOST_OF_DEVICE:g}"
        )
    return value


def _speculation(file: SpeculationFile | None) -> SpeculationSpec | None:
    if file is None:
        return None
    return SpeculationSpec(draft_tokens=file.draft_tokens, acceptance=file.acceptance)


def _layout_asked(
    file: ServingLayoutFile | TwoPoolsFile | None, text: str | None
) -> Deployment | None:
    """The job's layout with keys of ``--layout`` before it."""
    if text is None:
        return None if file is None else _layout(file)
    if isinstance(file, TwoPoolsFile):
        raise InputError(
            "--layout changes one pool; the job has two (layout.prefill, layout.decode)"
        )
    given = {} if file is None else file.model_dump()
    for key, value in key_values(text, "--layout", "replicas=2,tp=4").items():
        given[key] = int(value) if value.isdigit() else value
    return _layout(validate(ServingLayoutFile, given, "--layout"))


def _layout(file: ServingLayoutFile | TwoPoolsFile) -> Deployment:
    if isinstance(file, TwoPoolsFile):
        return DisaggregatedLayout(
            prefill=_degrees(file.prefill),
            decode=_degrees(file.decode),
            prefill_settings=_settings(file.prefill),
            decode_settings=_settings(file.decode),
        )
    return _degrees(file)


def _degrees(file: ServingLayoutFile) -> ServingLayout:
    return ServingLayout(**file.model_dump(include=set(ServingLayoutFile.model_fields)))


def _settings(file: PoolFile) -> PoolSettings:
    return PoolSettings(
        memory_fraction=_memory_fraction(file.memory_fraction),
        max_sequences=file.max_sequences,
        step_tokens=file.max_batched_tokens,
    )


def _run(file: ServingRunFile) -> ServingRunSpec:
    return ServingRunSpec(
        requests=file.requests,
        seed=file.seed,
        routing=file.routing,
        ready_s=positive_duration(file.ready, "run.ready"),
        deadline_s=positive_duration(file.deadline, "run.deadline"),
    )
