"""The catalogue for the terminal: lists, and one entry in full."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from meshfit.units import (
    format_bandwidth,
    format_bytes,
    format_count,
    format_flops_rate,
    format_percent,
)

Written = Callable[[Any], str]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


_COLUMNS: Mapping[str, Mapping[str, Written]] = {
    "models": {
        "name": str,
        "model_type": str,
        "parameters": format_count,
        "num_hidden_layers": str,
        "hidden_size": str,
        "source": str,
    },
    "accelerators": {
        "name": str,
        "memory": format_bytes,
        "memory_from": str,
        "memory_bandwidth": format_bandwidth,
        "link_bandwidth": format_bandwidth,
        "source": str,
    },
    "nodes": {
        "name": str,
        "accelerators": ", ".join,
        "gpus_per_host": str,
        "link_domain": str,
        "nic_bandwidth_per_accelerator": format_bandwidth,
        "source": str,
    },
    "engines": {
        "name": str,
        "kind": str,
        "exports": ", ".join,
        "starts": _yes,
        "reads_logs": _yes,
    },
}

_FIGURES: Mapping[str, Written] = {
    "memory": format_bytes,
    "memory_bandwidth": format_bandwidth,
    "link_bandwidth": format_bandwidth,
    "host_link_bandwidth": format_bandwidth,
    "nic_bandwidth_per_accelerator": format_bandwidth,
    "peak_flops_per_s": format_flops_rate,
    "matmul_fraction": format_percent,
}
"""Keys of an entry whose values are quantities; those below a key are as it is."""


def list_view(kind: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """One line an entry."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS[kind]:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(_cell(row[key], write) for key, write in _COLUMNS[kind].items()))
    return table


def entry_view(document: Mapping[str, Any]) -> Table:
    """Every key of one entry."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in document.items():
        write = _FIGURES.get(key, _plain)
        below = value if isinstance(value, Mapping) else {"": value}
        for name, figure in below.items():
            table.add_row(Text(f"{key}.{name}".removesuffix(".")), _cell(figure, write))
    return table


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return _yes(value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _cell(value: Any, write: Written) -> Text:
    return Text("not known" if value is None else write(value))
