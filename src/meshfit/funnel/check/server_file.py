"""A file that starts a server: that exact setting first, then better ones as changes of the file."""

import difflib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from meshfit.cluster.topology import Topology
from meshfit.engines.layout_options import Options
from meshfit.engines.serving_file import as_written
from meshfit.engines.syntax.edit import edited, says
from meshfit.errors import InputError
from meshfit.serve.job.clusters import cluster_of
from meshfit.serve.job.engine_file import ServedFile, broken_rules, layout_warnings
from meshfit.serve.load.usual import ServerSetting, setting_of, usual_traffic, whole_length
from meshfit.serve.memory.replica import Verdict, least_fraction
from meshfit.serve.plan.planning import AUTO_COUNTS
from meshfit.serve.setting.budget import MOST_OF_DEVICE, ServingBudget
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.space import serving_space
from meshfit.units import format_bytes

MOST_ALTERNATIVES = 3
LEAST_GAIN = 0.02
"""Share by which more tokens a second must come out for another layout to be worth a change."""


def server_file_document(given: ServedFile) -> dict[str, Any]:
    """What ``check FILE --json`` prints of a file that starts a server.

    ``violations[]`` and ``unknown_options[]`` make the ``verdict`` ``invalid``, ``warnings[]`` do not; it is ``tight`` where
    the server starts and cannot do all that it is told. ``memory`` is of the worst rank by category
    (``stages[]``: of each), ``kv_cache`` what the pools hold, ``load`` what comes of the usual
    traffic. ``alternatives[]``: ``label``, ``kv_cache``, ``load``, ``gain``, ``options``, ``diff``.
    """
    file = given.file
    broken = broken_rules(given)
    unknown = [
        {"option": one.name, "line": one.line, "nearest": one.nearest, "message": one.message}
        for one in file.unknown
    ]
    document: dict[str, Any] = {
        "schema_version": 1,
        "job": given.name,
        "kind": "serving",
        "file": {
            "engine": given.profile.name,
            "version": given.profile.version,
            "form": file.form,
        },
        "engine": given.profile.name,
        "model": given.model.name,
        "accelerator": given.topology.accelerator.name,
        "accelerators": file.num_ranks,
        "layout": None if given.layout is None else given.layout.as_json(),
        "label": "" if given.layout is None else given.layout.label,
        "violations": [one.as_json() for one in broken],
        "warnings": [one.as_json() for one in layout_warnings(given)],
        "unknown_options": unknown,
        "notes": list(given.notes),
        "verdict": "invalid",
        "memory": None,
        "kv_cache": None,
        "load": None,
        "alternatives": [],
        "absent": {},
    }
    reason = _why_not_predicted(given)
    if broken or given.layout is None or reason is not None:
        if not broken and not unknown:
            document |= {"verdict": None, "absent": {"memory": reason}}
        return document
    own = _setting(given, given.layout)
    verdict, notes = _verdict(given, own)
    return document | {
        "verdict": "invalid" if unknown else verdict,
        "notes": [*given.notes, *_idle(given), *notes],
        "memory": _memory(own),
        **_held_and_done(own),
        "alternatives": _alternatives(given, own, verdict),
    }


def _why_not_predicted(given: ServedFile) -> str | None:
    if given.file.cp > 1:
        return "memory under context parallelism of the prefill is not predicted"
    return None


def _setting(
    given: ServedFile,
    layout: ServingLayout,
    *,
    budget: ServingBudget | None = None,
    tokens: int | None = None,
    topology: Topology | None = None,
) -> ServerSetting:
    """The file's setting with what is given otherwise."""
    return setting_of(
        given.model,
        layout,
        given.profile,
        topology or given.topology,
        budget=budget or given.budget,
        request_tokens=tokens or given.request_tokens,
        traffic=usual_traffic(given.file.num_ranks, given.request_tokens),
    )


def _verdict(given: ServedFile, own: ServerSetting) -> tuple[Verdict | str, list[str]]:
    """Whether the server starts and does what it is told, and why not."""
    memory, longest = own.memory, f"a request of {given.request_tokens:,} tokens"
    if memory.verdict == "does_not_fit":
        lacking = format_bytes(-memory.margin_bytes)
        tokens = memory.kv_tokens // memory.attention_groups
        if given.file.starts_short and tokens > 0:
            return "tight", [f"{longest} is refused: the cache holds {tokens:,} tokens"]
        return "does_not_fit", [f"{lacking} are lacking for the cache of {longest}"]
    if given.budget.memory_fraction > MOST_OF_DEVICE and given.budget.memory_policy == "total":
        return "tight", [
            f"a share of {given.budget.memory_fraction:g} of the device leaves no room for what is not "
            f"foreseen; what is counted here is of {MOST_OF_DEVICE:g}"
        ]
    return "fits", []


def _idle(given: ServedFile) -> list[str]:
    idle = given.topology.num_accelerators - given.file.num_ranks
    return [f"{idle} of {given.topology.num_accelerators} accelerators stay idle"] if idle else []


def _memory(own: ServerSetting) -> dict[str, Any]:
    memory = own.memory
    return {
        "capacity": memory.capacity_bytes,
        "fraction": own.budget.memory_fraction,
        "least_fraction": least_fraction(memory),
        "margin": memory.margin_bytes,
        **memory.memory.as_json(),
        "stages": [one.memory.as_json() for one in memory.stages],
    }


def _held_and_done(setting: ServerSetting) -> dict[str, Any]:
    """The keys ``kv_cache`` and ``load``."""
    memory, load = setting.memory, setting.load
    cache = memory.worst.cache
    return {
        "kv_cache": {
            "tokens": setting.kv_tokens,
            "bytes_per_token": cache.bytes_per_token,
            "page_tokens": cache.page_tokens,
            "request_tokens": memory.request_tokens,
            "requests": setting.concurrency,
            "max_sequences": memory.max_sequences,
        },
        "load": load
        and {
            "prompt_tokens": load.traffic.prompt.median_tokens,
            "output_tokens": load.traffic.output.median_tokens,
            "in_flight": load.traffic.concurrency,
            "computed_at_once": load.in_flight * setting.layout.replicas,
            "ttft": load.ttft_s,
            "tpot": load.tpot_s,
            "output_tokens_per_s": setting.output_tokens_per_s,
        },
    }


def _alternatives(given: ServedFile, own: ServerSetting, verdict: str) -> list[dict[str, Any]]:
    """Where the server does not do what it is told: the single changes of its budget that help; then
    the layouts of the same accelerators that fit and give more tokens a second."""
    budgets = _budgets(given, own) if verdict != "fits" else ()
    return list(islice(chain(budgets, _layouts(given, own, verdict)), MOST_ALTERNATIVES))


def _budgets(given: ServedFile, own: ServerSetting) -> Iterator[dict[str, Any]]:
    names, budget, memory = given.form.budget, given.budget, own.memory
    share = round(least_fraction(memory) + 0.005, 2)
    if budget.memory_fraction < share <= MOST_OF_DEVICE and budget.memory_policy == "total":
        wider = _setting(given, own.layout, budget=replace(budget, memory_fraction=share))
        if wider.memory.verdict == "fits":
            yield _alternative(
                given, own, wider, f"{share:g} of the device", {names.memory_fraction: str(share)}
            )
    if budget.memory_fraction > MOST_OF_DEVICE:
        less = _setting(given, own.layout, budget=replace(budget, memory_fraction=MOST_OF_DEVICE))
        if less.memory.verdict == "fits":
            changes: Options = {names.memory_fraction: str(MOST_OF_DEVICE)}
            yield _alternative(given, own, less, f"{MOST_OF_DEVICE:g} of the device", changes)
    if budget.cache_element_bytes == 2:
        halved = _setting(given, own.layout, budget=replace(budget, cache_element_bytes=1.0))
        if halved.memory.verdict == "fits":
            yield _alternative(
                given, own, halved, "cache of 8 bits", {names.cache_type: names.eight_bits}
            )
    tokens = whole_length(memory.kv_tokens // memory.attention_groups)
    if 0 < tokens < given.request_tokens:
        shorter = _setting(given, own.layout, tokens=tokens)
        if shorter.memory.verdict == "fits":
            yield _alternative(
                given, own, shorter, f"requests of {tokens:,} tokens", {names.longest: tokens}
            )


def _layouts(given: ServedFile, own: ServerSetting, verdict: str) -> Iterator[dict[str, Any]]:
    """The fastest on the file's accelerators; where none of those holds the model, the fastest of each
    larger number."""
    least = own.output_tokens_per_s * (1 + LEAST_GAIN) if verdict == "fits" else 0.0
    for topology, count in _grounds(given, verdict):
        space = serving_space(given.model, given.profile, topology, count)
        better = [
            setting
            for layout in space.layouts
            if _changed(given, own.layout, layout)
            and (setting := _setting(given, layout, topology=topology)).memory.verdict == "fits"
            and setting.output_tokens_per_s > least
        ]
        better.sort(key=lambda one: -one.output_tokens_per_s)
        for one in better[: MOST_ALTERNATIVES if topology is given.topology else 1]:
            changes = _changed(given, own.layout, one.layout)
            yield _alternative(given, own, one, one.layout.label, changes)


def _grounds(given: ServedFile, verdict: str) -> Iterator[tuple[Topology, int]]:
    """The cluster with as many accelerators as the file takes; more of one host, where it does not fit
    and nobody says how many there are."""
    count = given.file.num_ranks
    yield given.topology, count
    if verdict == "does_not_fit" and not given.is_bound and given.file.hosts == 1:
        for more in AUTO_COUNTS:
            topology = cluster_of(given.topology.accelerator.name, more)
            if count < more <= topology.gpus_per_host:
                yield topology, more


def _changed(given: ServedFile, before: ServingLayout, after: ServingLayout) -> Options:
    """What has to be set otherwise: options that the file sets, and those of the new layout; nothing
    where the engine has none for it."""
    try:
        new = given.form.write(after, given.has_experts)
    except InputError:
        return {}
    old = given.form.write(before, given.has_experts)
    return {
        name: value
        for name, value in new.items()
        if value != old[name] or (value is None and name in given.file.spelling)
    }


def _alternative(
    given: ServedFile, own: ServerSetting, other: ServerSetting, label: str, changes: Options
) -> dict[str, Any]:
    options = as_written(changes, given.file, given.form.style)
    before = own.output_tokens_per_s
    return {
        "label": label,
        "layout": other.layout.as_json(),
        "memory": other.memory.memory.as_json(),
        **_held_and_done(other),
        "gain": other.output_tokens_per_s / before - 1 if before else None,
        "options": options,
        "diff": _diff(given, options),
    }


def _diff(given: ServedFile, options: Options) -> list[str]:
    """Lines of a unified diff of the file with ``options``; none where it is written in such a way that it
    then would not say them."""
    form, before = given.form, given.file.settings
    text = edited(given.text, before, options, form.style)
    try:
        read = form.read(text)
    except InputError:
        return []
    if not says(before, read.settings, options):
        return []
    rows = given.text.splitlines(), text.splitlines()
    return list(difflib.unified_diff(*rows, "given", "proposed", n=0, lineterm=""))
