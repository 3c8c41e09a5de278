"""Simulated rows of a serving plan, as documents and for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from meshfit.report.serving.simulation import simulation_document
from meshfit.serve.asked.latencies import METRICS
from meshfit.serve.plan.simulated_front import SimulatedRow
from meshfit.units import format_duration, format_percent


def simulated_rows(found: Sequence[SimulatedRow]) -> list[dict[str, Any]]:
    """As ``serve simulate --json`` prints each."""
    return [
        simulation_document(one.simulation, engine=one.row.engine, layout=one.row.layout.as_json())
        for one in found
    ]


def simulated_front_view(found: Sequence[SimulatedRow]) -> Table:
    """p95 and p99 of each metric beside the share of the saturation rate that the traffic is."""
    table = Table(
        title="The front, simulated: p95 / p99", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("layout")
    for name in (*METRICS, "of saturation", "within targets"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(*_cells(one))
    return table


def _cells(one: SimulatedRow) -> list[str]:
    found = one.simulation
    latencies = [
        " / ".join(format_duration(tails[name]) for name in ("p95", "p99")) if tails else "-"
        for tails in (found.latencies[metric] for metric in METRICS)
    ]
    load = "closed loop" if found.load is None else format_percent(found.load)
    warning = "" if found.stability in ("stable", "closed_loop") else f", {found.stability}"
    good = "-" if found.good_fraction is None else format_percent(found.good_fraction)
    label = f"{one.row.engine} {one.row.layout.label}"
    return [label, *latencies, load + warning.replace("_", " "), good]
