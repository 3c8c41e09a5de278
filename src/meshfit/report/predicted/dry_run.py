"""The terminal view of ``dryrun --json``."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.report.parts import words
from meshfit.report.parts.cells import KeysText
from meshfit.units import format_bytes, format_count, format_percent


def dry_run_view(document: Mapping[str, Any]) -> RenderableType:
    """Memory by category and where its peak is, collectives by kind and axis, FLOPs."""
    parts: list[RenderableType] = [_headline(document), _memory_table(document["memory"])]
    if document["collectives_summed"]:
        parts.append(_collectives_table(document["collectives_summed"]))
    parts.append(_flops(document["flops"]))
    if document["operators"]:
        parts.append(_operators_table(document["operators"]))
        parts.append(Text("Not seen: " + "; ".join(document["left_out"])))
    return Group(*parts)


def dry_run_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The leaders of a plan: memory as their program takes it, beside what was predicted of it."""
    table = Table(title="Dry run of the leaders", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("layout", overflow="fold")
    for name in ("allocated", "predicted", "apart", "reserved", "predicted"):
        table.add_column(name, justify="right")
    table.add_column("most apart in", overflow="fold")
    for row in rows:
        label = Group(KeysText(row["layout"]), f"rank {row['rank']}")
        if row["memory"] is None:
            table.add_row(label, "not run", *[""] * 4, row["refused"])
            continue
        memory, predicted = row["memory"], row["predicted"]
        table.add_row(
            label,
            format_bytes(memory["allocated"]),
            format_bytes(predicted["allocated"]),
            f"{predicted['allocated'] / memory['allocated'] - 1:+.1%}",
            "out of memory" if row["out_of_memory"] else words.size(memory["reserved"]),
            words.size(predicted["reserved"]),
            _most_apart(memory, predicted),
        )
    return table


def _most_apart(memory: Mapping[str, int], predicted: Mapping[str, int]) -> str:
    name = max(MEMORY_CATEGORIES, key=lambda one: abs(predicted[one] - memory[one]))
    apart = predicted[name] - memory[name]
    sign = "+" if apart >= 0 else "\N{MINUS SIGN}"
    return f"{name.replace('_', ' ')} {sign}{format_bytes(abs(apart))}"


def _headline(document: Mapping[str, Any]) -> Text:
    place = ", ".join(f"{axis} {index}" for axis, index in document["coordinates"].items() if index)
    where = f" ({place})" if place else ""
    return Text(
        f"{document['label']}: rank {document['rank']}{where} of {document['world_size']}, "
        f"dry run in {document['seconds']:.1f} s ({_extent(document['run'])})"
    )


def _extent(run: Mapping[str, Any]) -> str:
    if run["why_whole"] is not None:
        return "whole"
    return f"{run['layers']} layers and {run['micro_batches']} micro-batches, the rest repeated"


def _memory_table(memory: Mapping[str, Any]) -> RenderableType:
    table = Table(title="Memory at the peak", title_justify="left")
    table.add_column("category")
    table.add_column("bytes", justify="right")
    for name in (*MEMORY_CATEGORIES, "allocated"):
        if memory[name]:
            table.add_row(name.replace("_", " "), format_bytes(memory[name]))
    for name, use in memory.get("allocators", {}).items():
        end = ", out of memory" if use["out_of_memory"] else ""
        table.add_row(
            f"reserved, {name} segments",
            f"{format_bytes(use['reserved'])} ({format_percent(use['fragmentation'])} unused{end})",
        )
    return Group(table, Text(f"at {_peak(memory['peak_at'])}"))


def _peak(moment: Mapping[str, Any]) -> str:
    where = moment["module"] or "outside of modules"
    micro_batch = moment["micro_batch"]
    which = "" if micro_batch is None else f", micro-batch {micro_batch + 1}"
    phase = moment["phase"].replace("_", " ")
    return f"{moment['operation']} in {where} ({phase}{which})"


def _collectives_table(rows: list[Mapping[str, Any]]) -> Table:
    table = Table(title="Collectives of one step", title_justify="left")
    for name in ("kind", "axis", "phase"):
        table.add_column(name)
    for name in ("count", "bytes", "each"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["kind"],
            row["axis"],
            row["phase"].replace("_", " "),
            str(row["count"]),
            format_bytes(row["bytes"]),
            format_bytes(row["bytes"] / row["count"]),
        )
    return table


def _flops(flops: Mapping[str, int]) -> Text:
    again = f", {format_count(flops['recompute'])} of them recomputed" if flops["recompute"] else ""
    return Text(f"FLOPs: {format_count(flops['total'])}{again}")


def _operators_table(rows: list[Mapping[str, str]]) -> Table:
    table = Table(title="Operators that stand for others", title_justify="left")
    for name in ("cpu", "cuda", "when"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(row["cpu"], row["cuda"], row["when"])
    return table
