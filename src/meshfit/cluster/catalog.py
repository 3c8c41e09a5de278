"""The accelerators and node types that meshfit ships figures of.

The figures are in ``data/*.csv``, one row each, with their source; ``unverified`` names the
columns whose figure is from memory or nominal.
"""

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeVar, cast

from meshfit.cluster.topology import AcceleratorSpec, DeviceType, LevelKind
from meshfit.errors import InputError, nearest_name

DEFAULT_MATMUL_FRACTION = 0.75
"""Share of the dense peak that large matmuls reach, where no measurement is known: the measured
ones (``matmul_bf16_flops_per_s``) lie between 0.51 (MI300X) and 0.97 (Gaudi2), most near 0.8."""

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")

Row = Mapping[str, str]
Entry = TypeVar("Entry", "AcceleratorEntry", "NodeType")


@dataclass(frozen=True, kw_only=True)
class AcceleratorEntry:
    """One row of the catalogue.

    Attributes:
        memory_from: who reports ``spec.memory_bytes``: ``nvidia-smi``, ``rocm-smi``, ``torch``
            (its total memory), or ``label`` (the product's figure, in GiB).
        link_bytes_per_s: scale-up link of one accelerator in one direction (for a mesh or a torus
            that of one link); 0 without one.
        unverified: columns whose figure is from memory or nominal.
    """

    spec: AcceleratorSpec
    aliases: tuple[str, ...]
    vendor: str
    memory_from: str
    link_bytes_per_s: float
    link_kind: str
    unverified: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, kw_only=True)
class NodeType:
    """How accelerators are joined inside a host, and what leaves it.

    Attributes:
        accelerators: names of what it is sold with; for an accelerator the first node type that
            names it is the default one.
        gpus_per_host: accelerators that one operating system sees.
        link_kind: of the scale-up link; None: PCIe only.
        link_domain: accelerators that the link joins (72 in an NVL72 rack, 2 in bridged pairs).
        link_bytes_per_s: the link's rate where it is not the accelerator's own figure.
        nic_bytes_per_s: of the network cards, per accelerator and direction; None: not known.
    """

    name: str
    aliases: tuple[str, ...]
    accelerators: tuple[str, ...]
    gpus_per_host: int
    link_kind: LevelKind | None
    link_domain: int
    link_bytes_per_s: float | None
    num_nics: int | None
    nic_bytes_per_s: float | None
    rails: bool
    oversubscription: float | None
    source: str
    unverified: tuple[str, ...]


def accelerators() -> tuple[AcceleratorEntry, ...]:
    """Every accelerator of the catalogue, in its order."""
    return _read("accelerators.csv", _accelerator)


def node_types() -> tuple[NodeType, ...]:
    """Every node type of the catalogue, in its order."""
    return _read("node_types.csv", _node_type)


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
    return _normal(name) in {
        _normal(spelling) for entry in entries for spelling in _spellings(entry)
    }


def _spellings(entry: Entry) -> tuple[str, ...]:
    return (entry.name, *entry.aliases)


def _find(name: str, entries: tuple[Entry, ...], what: str) -> Entry:
    by_spelling = {_normal(spelling): entry for entry in entries for spelling in _spellings(entry)}
    found = by_spelling.get(_normal(name))
    if found is not None:
        return found
    known = [spelling for entry in entries for spelling in _spellings(entry)]
    nearest = nearest_name(name, known)
    hint = f"did you mean {nearest}?" if nearest else "`meshfit catalogue` lists the known ones"
    raise InputError(f"unknown {what} {name!r}; {hint}")


def _normal(name: str) -> str:
    """A spelling without case, punctuation and the unit of its memory size (80G, 80GB, 80 GiB)."""
    without_unit = re.sub(r"(?<=\d)\s*gi?b?(?![a-z0-9])", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", without_unit)


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
        source=row["source"],
        unverified=_list(row["unverified"]),
    )


def _number(text: str) -> float | None:
    return float(text) if text else None


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split("|")) if text else ()
