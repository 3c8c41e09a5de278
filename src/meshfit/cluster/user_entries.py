"""Entries of a person's own catalogue, made from what the file gives and the shipped entry has."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from meshfit.cluster.entries import (
    DEFAULT_MATMUL_FRACTION,
    AcceleratorEntry,
    NodeType,
    normal_spelling,
)
from meshfit.cluster.topology import AcceleratorSpec
from meshfit.errors import InputError
from meshfit.units import parse_bandwidth, parse_bytes
from meshfit.user_catalogue import UserAccelerator, UserNodeType

Entry = TypeVar("Entry", AcceleratorEntry, NodeType)
Own = TypeVar("Own", UserAccelerator, UserNodeType)

SOURCE = "typed in a catalogue of one's own"


def with_own(
    shipped: tuple[Entry, ...],
    own: Mapping[str, Own],
    make: Callable[[str, Own, Entry | None], Entry],
) -> tuple[Entry, ...]:
    """The person's entries first, then the shipped ones that none of them replaces.

    Raises:
        InputError: an entry of a new name lacks what a shipped one would have given.
    """
    made: list[Entry] = []
    replaced: set[str] = set()
    for name, values in own.items():
        wanted = normal_spelling(name)
        base = next((entry for entry in shipped if entry.is_spelt(wanted)), None)
        made.append(make(name, values, base))
        if base is not None:
            replaced.add(base.name)
    kept = [entry for entry in shipped if entry.name not in replaced]
    return tuple(made + kept)


def own_accelerator(
    name: str, own: UserAccelerator, base: AcceleratorEntry | None
) -> AcceleratorEntry:
    """One accelerator of the person's file."""
    if base is None:
        _require(f"accelerators.{name}", own, ("memory", "memory_bandwidth", "peak_flops_per_s"))
        base = _blank(name)
    spec = replace(
        base.spec,
        **_given(
            device_type=own.device_type,
            memory_bytes=_positive(own.memory, parse_bytes, f"accelerators.{name}.memory"),
            memory_bytes_per_s=_rate(own.memory_bandwidth, f"accelerators.{name}.memory_bandwidth"),
            peak_flops_per_s=own.peak_flops_per_s,
            matmul_fraction=own.matmul_fraction,
            host_link_bytes_per_s=_rate(
                own.host_link_bandwidth, f"accelerators.{name}.host_link_bandwidth"
            ),
            source=own.source or SOURCE,
        ),
    )
    return replace(
        base,
        spec=spec,
        aliases=_aliases(name, own.aliases, base),
        memory_from=base.memory_from if own.memory is None else "typed",
        unverified=(),
        **_given(
            vendor=own.vendor,
            link_bytes_per_s=_rate(own.link_bandwidth, f"accelerators.{name}.link_bandwidth"),
            link_kind=own.link_kind,
        ),
    )


def own_node_type(name: str, own: UserNodeType, base: NodeType | None) -> NodeType:
    """One node type of the person's file."""
    if base is None:
        _require(f"node_types.{name}", own, ("accelerators", "gpus_per_host"))
        base = _blank_node(name)
    if own.link_kind is not None:
        base = replace(base, link_kind=None if own.link_kind == "none" else own.link_kind)
    where = f"node_types.{name}"
    return replace(
        base,
        aliases=_aliases(name, own.aliases, base),
        source=own.source or SOURCE,
        unverified=(),
        **_given(
            accelerators=None if own.accelerators is None else tuple(own.accelerators),
            gpus_per_host=own.gpus_per_host,
            link_domain=own.link_domain,
            link_bytes_per_s=_rate(own.link_bandwidth, f"{where}.link_bandwidth"),
            num_nics=own.nics,
            nic_bytes_per_s=_rate(
                own.nic_bandwidth_per_accelerator, f"{where}.nic_bandwidth_per_accelerator"
            ),
            rails=own.rails,
            oversubscription=own.oversubscription,
        ),
    )


def _blank(name: str) -> AcceleratorEntry:
    spec = AcceleratorSpec(
        name=name,
        device_type="cuda",
        memory_bytes=0,
        peak_flops_per_s={},
        matmul_fraction=DEFAULT_MATMUL_FRACTION,
        memory_bytes_per_s=0.0,
    )
    return AcceleratorEntry(
        spec=spec,
        aliases=(),
        vendor="",
        memory_from="typed",
        link_bytes_per_s=0.0,
        link_kind="none",
        unverified=(),
    )


def _blank_node(name: str) -> NodeType:
    return NodeType(
        name=name,
        aliases=(),
        accelerators=(),
        gpus_per_host=1,
        link_kind=None,
        link_domain=1,
        link_bytes_per_s=None,
        num_nics=None,
        nic_bytes_per_s=None,
        rails=False,
        oversubscription=None,
        source=SOURCE,
        unverified=(),
    )


def _aliases(
    name: str, own: list[str] | None, base: AcceleratorEntry | NodeType
) -> tuple[str, ...]:
    """Given aliases beside those of the shipped entry, and the person's spelling of its name."""
    spelt = () if name == base.name else (name,)
    return tuple(dict.fromkeys((*base.aliases, *spelt, *(own or ()))))


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _require(where: str, own: UserAccelerator | UserNodeType, keys: tuple[str, ...]) -> None:
    missing = [key for key in keys if getattr(own, key) is None]
    if missing:
        raise InputError(
            f"own catalogue: {where} is no shipped entry, so it needs {', '.join(missing)}"
        )


def _rate(value: str | float | None, where: str) -> float | None:
    rate: float | None = _positive(value, parse_bandwidth, where)
    return rate


def _positive(value: Any, parse: Callable[[Any], Any], where: str) -> Any:
    """A parsed quantity above 0; None stays None."""
    if value is None:
        return None
    parsed = parse(value)
    if not parsed > 0:
        raise InputError(f"own catalogue: {where} {value!r} must be greater than 0")
    return parsed
