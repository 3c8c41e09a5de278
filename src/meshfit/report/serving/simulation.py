"""A simulated deployment, as a document and for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.serve.asked.latencies import METRICS, PERCENTILES
from meshfit.serve.simulate.simulation import NEAR_SATURATION, Simulation
from meshfit.serve.simulate.use import PoolUse
from meshfit.units import format_duration, format_percent

DEFINITIONS = {
    "ttft": "first token less sending",
    "itl": "each gap between tokens of a stream",
    "tpot": "(end to end - ttft) / (tokens - 1), one a request",
    "e2e": "last token less sending",
}

_WORDS = {
    "stable": "queues end: latencies are the deployment's",
    "near_saturation": (
        f"beyond {NEAR_SATURATION:.0%} of saturation: a capacity that is a tenth off turns these latencies "
        "into minutes"
    ),
    "overloaded": (
        "beyond saturation queues grow without end: latencies are those of this many requests, and "
        "grow with their number"
    ),
    "closed_loop": "closed loop: clients wait for their replies, so that nothing can overflow",
    "unknown": "all requests arrived at once, so that there is no rate to compare with it",
}


def simulation_document(
    found: Simulation, *, engine: str, layout: Mapping[str, Any]
) -> dict[str, Any]:
    """Seconds, requests a second and fractions; ``saturation`` beside every latency."""
    return {
        "engine": engine,
        "layout": dict(layout),
        "latencies": found.latencies,
        "definitions": DEFINITIONS,
        "loop": "closed" if found.stability == "closed_loop" else "open",
        "measured_requests": found.measured,
        "offered_rate": found.offered_per_s,
        "served_rate": found.served_per_s,
        "output_tokens_per_s": found.output_tokens_per_s,
        "goodput": {"rate": found.good_per_s, "fraction": found.good_fraction},
        "missed_targets": found.missed,
        "saturation": {
            "rate": found.saturation_per_s,
            "load": found.load,
            "distance": None if found.load is None else 1 - found.load,
            "stability": found.stability,
            "meaning": _WORDS[found.stability],
        },
        "refused": found.refused,
        "cut_to_longest_context": found.cut,
        "preemptions": found.preemptions,
        "prefix_reused": found.reused_fraction,
        "pools": {name: _pool(use) for name, use in found.pools.items()},
    }


def _pool(use: PoolUse) -> dict[str, Any]:
    return {
        "busy": use.busy_fraction,
        "kv_mean": use.kv_mean_fraction,
        "kv_peak": use.kv_peak_fraction,
        "kv_over_time": [list(point) for point in use.kv_over_time],
        "most_waiting": use.most_waiting,
    }


def simulation_view(document: Mapping[str, Any]) -> RenderableType:
    """Latencies by percentile, how far saturation is, and what was asked and served."""
    table = Table(title="Simulated latencies", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for percent in PERCENTILES:
        table.add_column(f"p{percent:g}", justify="right")
    table.add_column("is")
    for metric in METRICS:
        found = document["latencies"][metric]
        cells = [found.get(f"p{percent:g}") for percent in PERCENTILES]
        shown = ["-" if cell is None else format_duration(cell) for cell in cells]
        table.add_row(metric, *shown, DEFINITIONS[metric])
    parts: list[RenderableType] = [table, *(Text(line) for line in _lines(document))]
    return Group(*parts, *measured_view(document.get("measured")))


def measured_view(measured: Mapping[str, Any] | None) -> list[RenderableType]:
    """A measured throughput beside the predicted one, with the links where it is far too low."""
    if measured is None:
        return []
    share = format_percent(measured["of_predicted"])
    seen = (
        f"measured    {measured['output_tokens_per_s']:,.4g} tokens/s, {share} of what is predicted"
    )
    return [Text(seen), *suspicion_view(measured["suspicion"], measured["links"])]


def suspicion_view(
    suspicion: str | None, links: Sequence[Sequence[float | None]]
) -> list[RenderableType]:
    """Why a slow path is suspected, and the matrix of links between the ranks of a replica."""
    if suspicion is None:
        return []
    table = Table(title="GB/s from rank to rank", title_justify="left", box=box.SIMPLE_HEAD)
    for head in ("", *range(len(links))):
        table.add_column(str(head), justify="right")
    for rank, row in enumerate(links):
        table.add_row(str(rank), *("-" if rate is None else f"{rate / 1e9:.0f}" for rate in row))
    return [Text(f"slow path   {suspicion}"), *([table] if links else [])]


def _lines(document: Mapping[str, Any]) -> list[str]:
    saturation = document["saturation"]
    lines = [f"saturation  {saturation['rate']:.3g} requests/s; {_load(saturation)}"]
    lines.append(
        f"served      {document['served_rate']:.3g} requests/s, {document['output_tokens_per_s']:,.0f} tokens/s"
    )
    if (fraction := document["goodput"]["fraction"]) is not None:
        rate = document["goodput"]["rate"]
        lines.append(
            f"goodput     {rate:.3g} requests/s, {format_percent(fraction)} within all targets"
        )
    for name, seconds in document["missed_targets"].items():
        lines.append(f"missed      {name}: {format_duration(seconds)}")
    for name, pool in document["pools"].items():
        lines.append(
            f"{name:11s} busy {format_percent(pool['busy'])}, KV cache {format_percent(pool['kv_mean'])} "
            f"(at most {format_percent(pool['kv_peak'])}), at most {pool['most_waiting']} waiting"
        )
    if document["preemptions"]:
        lines.append(f"preempted   {document['preemptions']} times, for want of KV cache")
    if document["prefix_reused"]:
        lines.append(
            f"prefixes    {format_percent(document['prefix_reused'])} of prompt tokens reused"
        )
    if document["cut_to_longest_context"]:
        lines.append(
            f"cut         {document['cut_to_longest_context']} requests to the model's longest context, "
            "which a server would refuse or end there"
        )
    lines += [f"refused     {count}: {why}" for why, count in document["refused"].items()]
    return lines


def _load(saturation: Mapping[str, Any]) -> str:
    if saturation["load"] is None:
        return str(saturation["meaning"])
    return f"this is {format_percent(saturation['load'])} of it, {saturation['meaning']}"
