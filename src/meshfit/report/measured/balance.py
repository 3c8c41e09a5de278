"""Parts of a model as they were measured, and the stages made of them: what ``meshfit balance`` shows."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.mesh.spec import stages_text
from meshfit.report.parts import words
from meshfit.report.parts.titled import titled_table


def balance_view(document: dict[str, Any]) -> RenderableType:
    """What every part takes, every split with its slowest stage, and the layout to try."""
    return Group(_parts(document), _splits(document), *map(Text, _notes(document)))


def _parts(document: dict[str, Any]) -> Table:
    table = titled_table(f"a micro-batch of {document['micro_batch_size']}")
    table.add_column("part")
    for name in ("time", "kept", "parameters"):
        table.add_column(name, justify="right")
    for part in document["parts"]:
        table.add_row(
            part["name"],
            words.duration(part["seconds"]),
            words.size(part["kept_bytes"]),
            words.size(part["parameter_bytes"]),
        )
    return table


def _splits(document: dict[str, Any]) -> Table:
    table = titled_table(f"stages of {document['label']}")
    for name in ("split", "layers of stages"):
        table.add_column(name, overflow="fold")
    for name in ("slowest stage", "over the mean", "most held"):
        table.add_column(name, justify="right")
    for split in document["splits"]:
        table.add_row(
            split["name"],
            stages_text(split["stage_layers"]),
            words.duration(max(split["seconds"])),
            f"{split['slowest']:.2f}",
            words.size(max(split["held"])) + ("" if split["fits"] else " (too much)"),
        )
    return table


def _notes(document: dict[str, Any]) -> Iterator[str]:
    if document["measured_layers"] < document["layers"]:
        yield (
            f"{document['measured_layers']} layers stand for all {document['layers']}, each kind for its "
            f"own."
        )
    yield (
        f"Time is of forward and backward in one process; a stage may hold "
        f"{words.size(document['budget'])}."
    )
    yield from document["absent"].values()
    yield from _advice(document)


def _advice(document: dict[str, Any]) -> Iterator[str]:
    by_name = {split["name"]: split for split in document["splits"]}
    balanced = by_name.get("balanced")
    if balanced is None:
        return
    against = by_name.get("given", by_name["even"])
    if balanced["stage_layers"] == against["stage_layers"]:
        yield f"The {against['name']} split is the balanced one."
        return
    shorter = 1 - max(balanced["seconds"]) / max(against["seconds"])
    yield (
        f"Balanced, the slowest stage is {shorter:.1%} shorter than with the {against['name']} split: "
        f"--layout {balanced['label']}"
    )
