"""The terminal view of what earlier runs have corrected."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.report.parts import words
from meshfit.report.parts.titled import titled_table
from meshfit.units import format_duration

_NAMES = {
    "compute": "computation",
    "collectives": "exposed collectives",
    "step_time": "whole step, besides",
    "memory": "memory",
}


def calibration_view(calibration: Mapping[str, Any]) -> RenderableType:
    """The file, the factor of every kind of term, and leaders that stood elsewhere without them."""
    if not calibration["rows"] and calibration["default"]:
        return Text("", end="")
    parts: list[RenderableType] = [calibration_line(calibration)]
    learned = {name: found for name, found in calibration["factors"].items() if found["layouts"]}
    if learned:
        parts.append(_factors_table(learned))
    parts += [Text(line) for line in _moved(calibration.get("order", []))]
    return Group(*parts)


def calibration_line(calibration: Mapping[str, Any]) -> Text:
    """``calibration FILE: 12 layouts measured here; left out: 2 on another accelerator``."""
    if not calibration["rows"]:
        return Text(f"calibration {calibration['file']}: no runs yet, formulas alone", style="dim")
    layouts = max(found["layouts"] for found in calibration["factors"].values())
    text = f"calibration {calibration['file']}: {layouts} of {calibration['rows']} measured layouts"
    left_out = [f"{count} {reason}" for reason, count in calibration["left_out"].items()]
    return Text(f"{text}; left out: {', '.join(left_out)}" if left_out else text)


def _factors_table(factors: Mapping[str, Mapping[str, Any]]) -> Table:
    table = titled_table(
        "Learned from runs", "factor: measured over predicted, drawn towards 1 with few layouts"
    )
    table.add_column("term")
    table.add_column("factor", justify="right")
    table.add_column("within a factor of", justify="right")
    table.add_column("layouts", justify="right")
    for name, found in factors.items():
        table.add_row(
            _NAMES.get(name, name),
            f"x{found['factor']:.2f}",
            f"{found['spread']:.2f}",
            str(found["layouts"]),
        )
    return table


def _moved(order: list[dict[str, Any]]) -> list[str]:
    """Leaders whose rank is another without corrections, and how their step time changed."""
    moved = [row for row in order if row["rank"] != row["rank_without"]]
    if order and not moved:
        return [f"The first {len(order)} stand as they would without."]
    return [
        f"#{row['rank']} {words.layout(row['layout'])} was #{row['rank_without']} without: "
        f"{format_duration(row['step_time_without'])} then, {format_duration(row['step_time'])} now"
        for row in moved
    ]
