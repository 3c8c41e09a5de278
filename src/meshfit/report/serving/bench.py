"""A benchmark of a server beside its prediction, for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.report.serving.simulation import suspicion_view
from meshfit.serve.asked.latencies import METRICS, PERCENTILES
from meshfit.units import format_bytes, format_duration, format_percent


def bench_view(document: Mapping[str, Any]) -> RenderableType:
    """Measured and predicted percentiles in one table, then what was done."""
    table = Table(
        title="Latencies, measured (predicted)", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("")
    for percent in PERCENTILES:
        table.add_column(f"p{percent:g}", justify="right")
    predicted = document["prediction"]["latencies"]
    for metric in METRICS:
        found = document["measured"]["latencies"][metric]
        cells = [
            _cell(found.get(f"p{percent:g}"), _predicted(predicted, metric, percent))
            for percent in PERCENTILES
        ]
        table.add_row(metric, *cells)
    prediction = document["prediction"]
    doubts = suspicion_view(prediction["suspicion"], prediction["links"])
    return Group(table, *(Text(line) for line in _lines(document)), *doubts)


def _predicted(
    predicted: Mapping[str, Mapping[str, float]] | None, metric: str, percent: float
) -> float | None:
    return None if predicted is None else predicted[metric].get(f"p{percent:g}")


def _cell(found: float | None, predicted: float | None) -> str:
    shown = "-" if found is None else format_duration(found)
    return shown if predicted is None else f"{shown} ({format_duration(predicted)})"


def _lines(document: Mapping[str, Any]) -> list[str]:
    found, prediction = document["measured"], document["prediction"]
    offered = found["offered_per_s"]
    at = "all at once" if offered is None else f"at {offered:.3g} requests/s"
    lines = [
        f"sent        {document['requests']} requests in an {document['loop']} loop {at} by "
        f"{document['client']}; the first {document['warm_up_requests']} left out",
        f"to          {document['server']}; router: {document['router']}",
        f"served      {found['served']} requests, {found['served_per_s']:.3g}/s, "
        f"{found['output_tokens_per_s']:,.0f} tokens/s; sent late by at most "
        f"{format_duration(found['client_lag_s'])} (p99)",
        f"predicted   {prediction['basis']}",
    ]
    if prediction["saturation_rate"] is not None:
        load = prediction["load"]
        share = "" if load is None else f"; this is {format_percent(load)} of it"
        lines.append(f"saturation  {prediction['saturation_rate']:.3g} requests/s{share}")
    if not found["is_stationary"]:
        lines.append(
            "growing     first tokens came later and later: latencies are of this run only"
        )
    if document["memory"] is not None:
        lines.append(f"memory      {_memory(document['memory'])}")
    if found["good_fraction"] is not None:
        lines.append(f"goodput     {format_percent(found['good_fraction'])} within all targets")
    lines += [f"missed      {name}: {format_duration(s)}" for name, s in found["missed"].items()]
    lines += [f"failed      {count}: {why}" for why, count in found["failed"].items()]
    return lines


def _memory(memory: Mapping[str, Any]) -> str:
    """What the counter has, and beside it what the server claims."""
    claims = memory["claims"]
    said = [
        f"{claims['kv_tokens']:,} tokens of KV cache" if claims["kv_tokens"] is not None else "",
        f"{format_bytes(claims['weights_bytes'])} of weights" if claims["weights_bytes"] else "",
        f"{format_bytes(claims['graph_bytes'])} of graphs" if claims["graph_bytes"] else "",
    ]
    claimed = ", ".join(part for part in said if part)
    held = f"{format_bytes(memory['held_bytes'])} ({memory['counter']})"
    return f"{held}; it claims {claimed}" if claimed else held
