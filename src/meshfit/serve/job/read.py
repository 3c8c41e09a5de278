"""From the file of a serving job to a ``ServingJob``: names resolved, quantities parsed, cross-checked."""

import re
from pathlib import Path
from typing import Any

from meshfit.cluster.files import read_topology
from meshfit.cluster.topology import Topology
from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.files import validate
from meshfit.job.budget import positive_duration, read_price
from meshfit.job.found import FoundJob
from meshfit.job.key_values import key_values
from meshfit.job.kinds import read_job_mapping
from meshfit.job.read import given_weights
from meshfit.serve.asked.speculation import SpeculationSpec
from meshfit.serve.asked.traffic import LengthSpec, Metric, Target, TrafficSpec
from meshfit.serve.job.schema import (
    LengthsFile,
    PoolFile,
    Quantity,
    ServingJobFile,
    ServingLayoutFile,
    ServingRunFile,
    SpeculationFile,
    TrafficFile,
    TwoPoolsFile,
)
from meshfit.serve.job.spec import ServingJob, ServingRunSpec
from meshfit.serve.setting.budget import MOST_OF_DEVICE
from meshfit.serve.setting.layout import (
    Deployment,
    DisaggregatedLayout,
    PoolSettings,
    ServingLayout,
)
from meshfit.serve.setting.quantized import served_as
from meshfit.units import parse_duration
from meshfit.workload.model import ModelSpec
from meshfit.workload.models import read_model

WORKLOAD_EXAMPLE = "workload: {kind: serving, traffic: {rate: 20/s, prompt: {median: 900, p99: 8000}, output: 200}}"

_RATE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*/\s*(s|min|h)\s*")
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
_AUTO = re.compile(r"\s*auto\s*x\s*(.+?)\s*", re.IGNORECASE)


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
