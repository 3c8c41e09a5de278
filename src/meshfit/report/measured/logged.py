"""The terminal view of ``compare --log --json``."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.report.parts.titled import titled_table
from meshfit.units import format_bytes, format_duration, format_flops_rate, format_percent


def logged_view(document: Mapping[str, Any]) -> RenderableType:
    """What the log says, and where a job was given what was predicted of it."""
    parts: list[RenderableType] = [_headline(document["log"]), _figures(document)]
    if document.get("comparison"):
        parts.append(_comparison(document))
    parts += [Text(f"• {line}", style="bold red") for line in document.get("off", ())]
    parts += [Text(f"• {line}") for line in (*document["log"]["notes"], *document.get("notes", ()))]
    parts += [
        Text(f"• no {name.replace('_', ' ')}: {why}", style="dim")
        for name, why in document["absent"].items()
    ]
    return Group(*parts)


def _headline(log: Mapping[str, Any]) -> Text:
    version = f" {log['version']}" if log["version"] else ""
    stated = ", ".join(f"{name}={value}" for name, value in log["stated"].items())
    return Text(
        f"{log['form']}{version}: steps {log['first_step']} to {log['last_step']}"
        + (f"; {stated}" if stated else "")
    )


def _figures(document: Mapping[str, Any]) -> Table:
    table = titled_table("As the log has it")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("of", overflow="fold")
    for row in _rows(document["measured"]):
        table.add_row(*row)
    return table


def _rows(measured: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if step := measured["step_time"]:
        spread = "" if step["p10"] is None else _spread(step)
        yield "step time", format_duration(step["median"]), f"{spread}{step['from']}"
    if measured["tokens_per_s"]:
        each = measured["tokens_per_s_per_accelerator"]
        of_each = f"{each:,.0f} an accelerator" if each else ""
        yield "tokens/s", f"{measured['tokens_per_s']:,.0f}", of_each
    if measured["mfu_printed"] is not None:
        yield "MFU, as printed", format_percent(measured["mfu_printed"]), "the engine's own formula"
    if measured.get("mfu") is not None:
        yield "MFU", format_percent(measured["mfu"]), "causal attention counted once, dense peak"
    if measured["flops_per_s_printed"] is not None:
        rate = format_flops_rate(measured["flops_per_s_printed"])
        yield "FLOP/s of a rank, as printed", rate, "the engine's own formula"
    for kind, size in measured["memory"].items():
        if size is not None:
            yield f"memory, {kind}", format_bytes(size), "highest of a rank that the log has"
    losses = list(measured["losses"].items())
    if losses:
        (first, before), (last, now) = losses[0], losses[-1]
        yield "loss", f"{now:.4g}", f"step {last}; {before:.4g} at step {first}"


def _spread(step: Mapping[str, Any]) -> str:
    each = "" if step["steps_each"] == 1 else f", up to {step['steps_each']} steps each"
    return (
        f"{format_duration(step['p10'])} to {format_duration(step['p90'])} (10th to 90th percentile of "
        f"{step['statements']}{each}); "
    )


def _comparison(document: Mapping[str, Any]) -> Table:
    table = titled_table(
        f"{document['label']}, predicted as {document['estimated_with']}",
        caption="ratio: measured over predicted",
    )
    table.add_column("figure")
    for column in ("measured", "predicted", "interval", "ratio"):
        table.add_column(column, justify="right")
    for row in document["comparison"]:
        shown = format_duration if row["figure"] == "step_time" else format_bytes
        table.add_row(
            row["figure"].replace("_", " "),
            shown(row["measured"]),
            shown(row["predicted"]),
            f"{shown(row['low'])} to {shown(row['high'])}",
            Text(f"{row['ratio']:.2f}", style="green" if row["inside"] else "bold red"),
        )
    return table
