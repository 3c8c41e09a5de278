"""A serving fit, as a document and for the terminal."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.record.serving import ServingRow
from meshfit.serve.fit.choice import ServingChoice
from meshfit.units import format_duration, format_percent


def serving_fit_document(
    rows: tuple[ServingRow, ...], choice: ServingChoice, *, server: str
) -> dict[str, Any]:
    """Every row, the winner's label (None: none meets the targets) and the reason."""
    return {
        "outcome": "ok" if choice.winner else "none_meets_targets",
        "winner": None if choice.winner is None else choice.winner.layout,
        "reason": choice.reason,
        "server": server,
        "candidates": [_candidate(row) for row in rows],
    }


def _candidate(row: ServingRow) -> dict[str, Any]:
    bench = row.bench or {}
    return {
        "layout": row.layout,
        "label": row.label,
        "accelerators": row.accelerators,
        "outcome": row.outcome,
        "failure": row.failure,
        "parity": None if row.parity is None else asdict(row.parity),
        "measured": bench.get("measured"),
        "prediction": bench.get("prediction"),
        "seconds": row.seconds,
    }


def serving_fit_view(document: Mapping[str, Any]) -> RenderableType:
    """One line a layout: output, latencies measured and predicted, targets; then the winner."""
    table = Table(title="Layouts on real servers", title_justify="left", box=box.SIMPLE_HEAD)
    for name in (
        "layout",
        "outcome",
        "equal tokens",
        "ttft p95",
        "tpot p95",
        "requests/s",
        "targets",
    ):
        table.add_column(name, justify="left" if name in ("layout", "outcome") else "right")
    for row in document["candidates"]:
        table.add_row(*_cells(row))
    words = [Text("measured (predicted by a clock measured on that server)")]
    words += [
        Text(f"{row['label']}: {row['failure']}")
        for row in document["candidates"]
        if row["failure"]
    ]
    winner = document["winner"]
    title = "Winner: none" if winner is None else "Winner"
    return Group(table, *words, Text(f"{title}: {document['reason']}", style="bold"))


def _cells(row: Mapping[str, Any]) -> list[str]:
    measured, parity = row["measured"], row["parity"]
    outcome = row["outcome"].replace("_", " ")
    equal = "-" if parity is None else format_percent(parity["share_equal"])
    if measured is None:
        return [row["label"], outcome, equal, "-", "-", "-", "-"]
    predicted = row["prediction"]["latencies"]
    latencies = [
        _both(
            measured["latencies"][metric].get("p95"), (predicted or {}).get(metric, {}).get("p95")
        )
        for metric in ("ttft", "tpot")
    ]
    targets = "missed " + ", ".join(measured["missed"]) if measured["missed"] else "met"
    return [row["label"], outcome, equal, *latencies, f"{measured['served_per_s']:.3g}", targets]


def _both(found: float | None, predicted: float | None) -> str:
    shown = "-" if found is None else format_duration(found)
    return shown if predicted is None else f"{shown} ({format_duration(predicted)})"
