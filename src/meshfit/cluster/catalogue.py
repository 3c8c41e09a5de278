"""The accelerators and node types that meshfit ships figures of.

The figures are in ``data/*.csv``, one row each, with their source; ``unverified`` names the
columns whose figure is from memory or nominal. A person's own file goes before them
(``meshfit.user_catalogue``).
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Literal, TypeVar, cast

from meshfit.cluster.entries import (
    DEFAULT_MATMUL_FRACTION,
    AcceleratorEntry,
    NodeType,
    normal_spelling,
)
from meshfit.cluster.topology import AcceleratorSpec, DeviceType, Transport
from meshfit.cluster.user_entries import own_accelerator, own_node_type, with_own
from meshfit.errors import InputError, nearest_name
from meshfit.user_catalogue import user_catalogue

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")

Row = Mapping[str, str]
Entry = TypeVar("Entry", "AcceleratorEntry", "NodeType")


def accelerators() -> tuple[AcceleratorEntry, ...]:
    """Every accelerator, the person's own first, then the shipped ones that it does not replace."""
    own = user_catalogue().accelerators
    return with_own(_read("accelerators.csv", _accelerator), own, own_accelerator)


def node_types() -> tuple[NodeType, ...]:
    """Every node type, the person's own first, then the shipped ones that it does not replace."""
    own = user_catalogue().node_types
    return with_own(_read("node_types.csv", _node_type), own, own_node_type)


def accelerator(name: str) -> AcceleratorSpec:
    """The accelerator that ``name`` spells, in any of the spellings met in the field.

    Raises:
        InputError: no such accelerator; the message has the nearest name.
    """
    return accelerator_entry(name).spec


def accelerator_entry(name: str) -> AcceleratorEntry:
    """As ``accelerator``, with what the catalogue says beside the specification."""
    return _find(name, accelerators(), "accelerator")


def node_type(name: str) -> NodeType:
    """The node type that ``name`` spells.

    Raises:
        InputError: no such node type; the message has the nearest name.
    """
    return _find(name, node_types(), "node type")


def default_node_type(accelerator_name: str) -> NodeType | None:
    """The node type an accelerator usually comes in; None when the catalogue has none."""
    return next((node for node in node_types() if accelerator_name in node.accelerators), None)


def is_known(name: str, entries: Iterable[Entry]) -> bool:
    """Whether ``name`` spells one of the entries."""
    wanted = normal_spelling(name)
    return any(entry.is_spelt(wanted) for entry in entries)


def _find(name: str, entries: tuple[Entry, ...], what: str) -> Entry:
    wanted = normal_spelling(name)
    found = next((entry for entry in entries if entry.is_spelt(wanted)), None)
    if found is not None:
        return found
    known = [spelling for entry in entries for spelling in entry.spellings]
    nearest = nearest_name(name, known)
    command = f"meshfit catalogue {'nodes' if what == 'node type' else 'accelerators'}"
    hint = f"did you mean {nearest}?" if nearest else f"`{command}` lists the known ones"
    raise InputError(f"unknown {what} {name!r}; {hint}")


@cache
def _read(file: str, parse: Callable[[Row], Entry]) -> tuple[Entry, ...]:
    text = files("meshfit.cluster").joinpath("data", file).read_text(encoding="utf-8")
    return tuple(parse(row) for row in csv.DictReader(text.splitlines()))


def _accelerator(row: Row) -> AcceleratorEntry:
    peaks = {
        precision: float(row[f"{precision}_flops_per_s"])
        for precision in PRECISIONS
        if row[f"{precision}_flops_per_s"]
    }
    measured = _number(row["matmul_bf16_flops_per_s"])
    spec = AcceleratorSpec(
        name=row["name"],
        device_type=cast(DeviceType, row["device_type"]),
        memory_bytes=int(row["memory_bytes"]),
        peak_flops_per_s=peaks,
        matmul_fraction=measured / peaks["bf16"] if measured else DEFAULT_MATMUL_FRACTION,
        memory_bytes_per_s=float(row["memory_bytes_per_s"]),
        host_link_bytes_per_s=_number(row["host_link_bytes_per_s"]),
        source=row["source"],
    )
    return AcceleratorEntry(
        spec=spec,
        aliases=_list(row["aliases"]),
        vendor=row["vendor"],
        memory_from=row["memory_from"],
        link_bytes_per_s=_number(row["link_bytes_per_s"]) or 0.0,
        link_kind=row["link_kind"],
        unverified=_list(row["unverified"]),
    )


def _node_type(row: Row) -> NodeType:
    kind = row["link_kind"]
    return NodeType(
        name=row["name"],
        aliases=_list(row["aliases"]),
        accelerators=_list(row["accelerators"]),
        gpus_per_host=int(row["gpus_per_host"]),
        link_kind=None if kind == "none" else cast(Literal["switch", "mesh"], kind),
        link_domain=int(row["link_domain"]),
        link_bytes_per_s=_number(row["link_bytes_per_s"]),
        num_nics=int(row["nics"]) if row["nics"] else None,
        nic_bytes_per_s=_number(row["nic_bytes_per_s_per_accelerator"]),
        rails=row["rails"] == "yes",
        oversubscription=_number(row["oversubscription"]),
        transport=cast(Transport, row["transport"]) if row["transport"] else None,
        source=row["source"],
        unverified=_list(row["unverified"]),
    )


def _number(text: str) -> float | None:
    return float(text) if text else None


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split("|")) if text else ()
