"""The terminal view of ``check FILE --json``, FILE being an engine's own."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from meshfit.report.parts.file_change import file_change
from meshfit.report.predicted.check import check_view
from meshfit.units import format_bytes, format_duration, format_percent


def engine_file_view(document: Mapping[str, Any]) -> RenderableType:
    """What the file says, what is wrong with it, whether it fits, and what would be better."""
    file = document["file"]
    parts: list[RenderableType] = [
        Text(f"{file['form']}, as {file['engine']} {file['version']} reads them")
    ]
    parts += [Text(one["message"], style="bold red") for one in document["unknown_options"]]
    if document["unknown_options"] and document["memory"]:
        parts.append(Text("What follows leaves such options out."))
    parts.append(check_view(document))
    for number, one in enumerate(document["alternatives"], start=1):
        parts += _alternative(number, one)
    return Group(*parts)


def _alternative(number: int, one: Mapping[str, Any]) -> list[RenderableType]:
    """A better layout: what it brings, and the change of the file."""
    step, memory = one["step_time"], one["memory"]
    gain = f", {format_percent(one['gain'])} shorter" if (one["gain"] or 0) > 0 else ""
    return [
        Text(""),
        Text(f"{number}. {one['label']}", style="bold"),
        Text(
            f"   step {format_duration(step['middle'])}{gain}; at most "
            f"{format_bytes(memory['high'])} a rank"
        ),
        file_change(one),
    ]
