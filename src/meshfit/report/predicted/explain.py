"""The terminal view of ``plan --explain``: what each axis of a layout does."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.report.parts import words
from meshfit.report.parts.titled import titled_table
from meshfit.units import format_bytes, format_duration


def explain_view(document: Mapping[str, Any]) -> RenderableType:
    """One row an axis, with the notes that belong to it."""
    if not document["rows"]:
        return Text(f"{document['label']}: one rank, nothing is divided.")
    notes = [Text(f"note: {note}", style="yellow") for note in document["notes"]]
    absent = [
        Text(f"not known: {', '.join(keys)}: {reason}", style="yellow")
        for reason, keys in _by_reason(document["absent"]).items()
    ]
    return Group(_table(document), _formulas(document), *notes, *absent)


def _table(document: Mapping[str, Any]) -> Table:
    table = titled_table(
        f"What each axis of {document['label']} does",
        "replicated: what every rank of the axis holds alike; sent: by each rank in a step",
    )
    table.add_column("axis", no_wrap=True)
    table.add_column("divides", overflow="fold")
    table.add_column("replicated", overflow="fold")
    table.add_column("collectives a step", overflow="fold")
    table.add_column("sent", justify="right", no_wrap=True)
    table.add_column("exposed", justify="right", no_wrap=True)
    table.add_column("level")
    for row in document["rows"]:
        collectives = row["collectives"] or []
        table.add_row(
            f"{row['axis']}={row['degree']}",
            "\n".join(map(_divided, row["divides"])),
            _replicated(row["replicated"]),
            "\n".join(f"{one['times']:,} x {one['collective']}" for one in collectives)
            or _none(row["collectives"]),
            "\n".join(format_bytes(one["bytes"]) for one in collectives),
            "\n".join(_seconds(one["exposed"]) for one in collectives),
            row["level"] + (" (leaves the host)" if row["leaves_host"] else ""),
        )
        table.add_section()
    return table


def _formulas(document: Mapping[str, Any]) -> RenderableType:
    """How the bytes of each collective come about, one line a kind of message."""
    lines = [
        Text(
            f"  {row['axis']} {one['collective']}: {part['formula']} = "
            f"{format_bytes(part['bytes'])} ({part['what']})"
        )
        for row in document["rows"]
        for one in row["collectives"] or ()
        for part in one["parts"]
    ]
    return (
        Group(Text("times a step x share that each rank sends x size:"), *lines)
        if lines
        else Group()
    )


def _divided(one: Mapping[str, Any]) -> str:
    """``query heads 32 -> 8``."""
    part = one["part"]
    shown = f"{part:,.0f}" if part == int(part) else f"{part:,.1f}"
    copies = f" (on {one['copies']} ranks)" if one["copies"] > 1 else ""
    return f"{one['dimension']} {one['whole']:,} \N{RIGHTWARDS ARROW} {shown}{copies}"


def _replicated(states: Mapping[str, int] | None) -> str:
    if states is None:
        return words.ABSENT
    held = [f"{name} {format_bytes(size)}" for name, size in states.items() if size]
    return "\n".join(held) or "nothing"


def _none(collectives: Sequence[Any] | None) -> str:
    return words.ABSENT if collectives is None else "none"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return words.ABSENT
    return format_duration(seconds) if seconds else "hidden"


def _by_reason(absent: Mapping[str, str]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for key, reason in absent.items():
        reasons.setdefault(reason, []).append(key)
    return reasons
