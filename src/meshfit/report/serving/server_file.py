"""The terminal view of ``check FILE --json``, FILE being one that starts a server."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.report.parts.file_change import file_change
from meshfit.report.parts.violations import violations_list, warnings_list
from meshfit.units import format_bytes, format_count, format_duration, format_percent

_STYLES = {"fits": "bold green", "tight": "bold yellow"}
_CATEGORIES = ("weights", "kv_cache", "workspace", "communication", "unattributed", "total")


def server_file_view(document: Mapping[str, Any]) -> RenderableType:
    """What the file says, what is wrong with it, what it holds, and what would be better."""
    file = document["file"]
    parts: list[RenderableType] = [
        Text(f"{file['form']}, as {file['engine']} {file['version']} reads it")
    ]
    parts += [Text(one["message"], style="bold red") for one in document["unknown_options"]]
    parts.append(_headline(document))
    if document["violations"]:
        parts.append(violations_list(document["violations"]))
    if document["memory"]:
        parts += [*_memory(document["memory"]), Text(_capacity(document["kv_cache"]))]
    if document["load"]:
        parts.append(Text(_load(document["load"])))
    if document["warnings"]:
        parts.append(warnings_list(document["warnings"]))
    parts += [Text(f"• {line}") for line in document["notes"]]
    for number, one in enumerate(document["alternatives"], start=1):
        parts += _alternative(number, one)
    return Group(*parts)


def _headline(document: Mapping[str, Any]) -> Text:
    verdict = document["verdict"]
    words = Text(
        f"{document['model']} on {document['accelerators']} {document['accelerator']}, {document['label']}: "
    )
    if verdict is None:
        words.append("legal", style="bold green")
        return words.append(f"  ({document['absent']['memory']})")
    return words.append(verdict.replace("_", " "), style=_STYLES.get(verdict, "bold red"))


def _memory(memory: Mapping[str, Any]) -> list[RenderableType]:
    stages = memory["stages"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("category")
    for index in range(len(stages)):
        table.add_column(f"stage {index}", justify="right")
    for name in _CATEGORIES:
        table.add_row(name.replace("_", " "), *(_bytes(stage[name]) for stage in stages))
    granted = f"{memory['fraction']:g} of {format_bytes(memory['capacity'])} granted"
    return [Text(f"Memory of a rank of each stage, {granted}"), table]


def _bytes(size: int) -> str:
    return format_bytes(size) if size >= 0 else f"{format_bytes(-size)} lacking"


def _capacity(cache: Mapping[str, Any]) -> str:
    return (
        f"KV cache: {format_count(cache['tokens'])} tokens in all replicas; {cache['requests']:,} requests of "
        f"{cache['request_tokens']:,} tokens at once"
    )


def _load(load: Mapping[str, Any]) -> str:
    return (
        f"{load['in_flight']} requests in flight, {load['prompt_tokens']:.0f} tokens in and "
        f"{load['output_tokens']:.0f} out: first token after {format_duration(load['ttft'])}, "
        f"{format_duration(load['tpot'])} a token, {load['output_tokens_per_s']:,.0f} tokens/s"
    )


def _alternative(number: int, one: Mapping[str, Any]) -> list[RenderableType]:
    cache, load = one["kv_cache"], one["load"]
    gain = f", {format_percent(one['gain'])} more" if (one["gain"] or 0) > 0 else ""
    rate = f"; {load['output_tokens_per_s']:,.0f} tokens/s{gain}" if load else ""
    return [
        Text(""),
        Text(f"{number}. {one['label']}", style="bold"),
        Text(
            f"   {cache['requests']:,} requests of {cache['request_tokens']:,} tokens at once{rate}"
        ),
        file_change(one),
    ]
