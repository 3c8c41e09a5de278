"""The terminal view of ``check --json``: verdict, violations, memory per pipeline rank, time."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.report.parts.calibration import calibration_view
from meshfit.report.parts.violations import violations_list, warnings_list
from meshfit.units import format_bytes, format_duration, format_percent

_STYLES = {"fits": "bold green", "tight": "bold yellow", "does_not_fit": "bold red"}


def check_view(document: Mapping[str, Any], *, groups: bool = False) -> RenderableType:
    """Everything ``check`` knows of one layout; ``groups`` adds the ranks of every axis."""
    parts: list[RenderableType] = [_headline(document)]
    if document["violations"]:
        parts.append(violations_list(document["violations"]))
    elif document["memory"]:
        parts += [_memory_table(document["memory"]), _time_table(document)]
    if document.get("warnings"):
        parts.append(warnings_list(document["warnings"]))
    if document.get("engines"):
        parts.append(engines_table(document["engines"]))
    if document.get("calibration"):
        parts.append(calibration_view(document["calibration"]))
    if document.get("measured"):
        parts += _measured(document["measured"])
    parts += [Text(f"• {line}") for line in (*document["advice"], *document["notes"])]
    if groups and document.get("groups"):
        parts.append(_groups_table(document["groups"]))
    return Group(*parts)


def _headline(document: Mapping[str, Any]) -> Text:
    verdict = document["verdict"]
    words = Text(f"{document['label']}: ")
    if verdict is None:
        words.append("legal", style="bold green")
        return words.append(f"  (memory and time: {document['absent']['memory']})")
    words.append(verdict.replace("_", " "), style=_STYLES.get(verdict, "bold red"))
    memory = document["memory"]
    if memory:
        high, capacity = memory["interval"]["high"], memory["capacity"]
        words.append(
            f"  (at most {format_bytes(high)} of {format_bytes(capacity)}, "
            f"{format_percent(1 - high / capacity)} left; {format_percent(memory['headroom'])} asked)"
        )
    return words


def engines_table(engines: Sequence[Mapping[str, Any]]) -> Table:
    """What each engine makes of the layout: legal or not, memory, and what it says."""
    table = Table(title="By engine", title_justify="left")
    table.add_column("engine", no_wrap=True)
    table.add_column("legal", no_wrap=True)
    table.add_column("memory", no_wrap=True)
    table.add_column("violations and warnings, with its own options", overflow="fold")
    for row in engines:
        legal = Text("yes", style="green") if row["legal"] else Text("no", style="bold red")
        said = [one["message"] for one in row["violations"]]
        said += [f"warning: {one['message']}" for one in row["warnings"]]
        table.add_row(
            f"{row['engine']} {row['version']}",
            legal,
            _engine_memory(row),
            "\n".join(said) or "none",
        )
    return table


def _engine_memory(row: Mapping[str, Any]) -> Text:
    if not row["memory"]:
        return Text("absent" if row["legal"] else "")
    text = Text(str(row["verdict"]).replace("_", " "), style=_STYLES.get(row["verdict"], ""))
    if not row["estimated_with"].startswith(f"{row['engine']} "):
        text.append(f"\nas {row['estimated_with']}", style="dim")
    return text


def _memory_table(memory: Mapping[str, Any]) -> Table:
    table = Table(title="Memory of each pipeline rank at its peak", title_justify="left")
    table.add_column("category")
    stages = memory["stages"]
    for index in range(len(stages)):
        table.add_column(f"rank {index}", justify="right")
    shown = [name for name in MEMORY_CATEGORIES if any(stage[name] for stage in stages)]
    for name in (*shown, "reserved", "context", "total"):
        if any(stage[name] for stage in stages):
            cells = [format_bytes(stage[name]) if stage[name] else "-" for stage in stages]
            table.add_row(name.replace("_", " "), *cells)
    return table


def _time_table(document: Mapping[str, Any]) -> Table:
    step = document["interval"]["step_time"]
    table = Table(
        title=(
            f"One optimizer step: {format_duration(step['middle'])} "
            f"({format_duration(step['low'])} to {format_duration(step['high'])}, "
            f"{step['basis'].replace('_', ' ')})"
        ),
        title_justify="left",
    )
    table.add_column("term")
    table.add_column("time", justify="right")
    for term, seconds in document["time"].items():
        if term != "step" and seconds:
            table.add_row(term, format_duration(seconds))
    return table


def _measured(measured: Mapping[str, Any]) -> list[Text]:
    """What was seen beside what is predicted; where it is far slower, the links it goes over."""
    mfu = "" if measured["mfu"] is None else f", MFU {format_percent(measured['mfu'])}"
    lines = [
        Text(
            f"measured: {measured['tokens_per_s']:,.0f} tokens/s in all, "
            f"{measured['tokens_per_s_per_accelerator']:,.0f} an accelerator{mfu}; "
            f"{format_percent(measured['of_predicted'])} of the prediction"
        )
    ]
    if measured["suspicion"] is not None:
        lines.append(Text(measured["suspicion"], style="bold red"))
        lines += [Text(f"  {link}") for link in measured["links"]]
    return lines


def _groups_table(groups: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Groups of every axis", title_justify="left")
    for column in ("axis", "ranks", "hosts", "level"):
        table.add_column(column)
    for group in groups:
        ranks = ", ".join(map(str, group["ranks"]))
        table.add_row(group["axis"], ranks, ", ".join(group["hosts"]), group["level"])
    return table
