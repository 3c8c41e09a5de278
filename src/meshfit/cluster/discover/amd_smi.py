"""``amd-smi topology``: tables by PCI bus id, or its ``--json``."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from meshfit.cluster.discover.amd import gpu_paths
from meshfit.cluster.discover.facts import GpuFacts, HostFacts, Reading, pair
from meshfit.cluster.discover.pci import normal_bus_id
from meshfit.cluster.discover.text import Line, SourceText

NAME = "amd-smi topology"

_TITLE = re.compile(r"\s*([A-Z][A-Z -]+) TABLE:\s*$")
_BUS_ID = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_TABLES = ("WEIGHT", "HOPS", "LINK TYPE")


def recognizes(source: SourceText) -> bool:
    titles = [match[1] for line in _all_lines(source) if (match := _TITLE.match(line.text))]
    return any(title in (*_TABLES, "ACCESS") for title in titles) or bool(_json_gpus(source))


def read(source: SourceText) -> Reading:
    if gpus := _json_gpus(source):
        return Reading(source=source.name, format=NAME, hosts=(_from_json(source, gpus),))
    hosts = tuple(_host(part) for part in source.by_host)
    return Reading(source=source.name, format=NAME, hosts=hosts)


def _all_lines(source: SourceText) -> list[Line]:
    return [line for part in source.by_host for line in part.lines]


def _host(source: SourceText) -> HostFacts:
    tables = _tables(source)
    missing = [title for title in _TABLES if title not in tables]
    if missing:
        source.fail(source.lines[-1], f"ends without the {' and '.join(missing)} table")
    parsed = {title: _table(source, title, lines) for title, lines in tables.items()}
    buses = parsed["LINK TYPE"][0]
    for title, (columns, _) in parsed.items():
        if columns != buses:
            source.fail(
                tables[title][0], f"the {title} table is of other GPUs than that of link types"
            )
    labels = [f"GPU{index}" for index in range(len(buses))]
    access = parsed.get("ACCESS", (buses, []))[1]
    return HostFacts(
        host=source.host,
        gpus=_gpus(buses),
        paths=gpu_paths(source, labels, *(parsed[title][1] for title in _TABLES)),
        peer_access={
            pair(labels[i], labels[j]): "OK" if cell == "ENABLED" else "NS"
            for i, row in enumerate(access)
            for j, cell in enumerate(row)
            if i < j
        },
    )


def _tables(source: SourceText) -> dict[str, list[Line]]:
    """Lines of each table, up to an empty line, the next title or the legend."""
    tables: dict[str, list[Line]] = {}
    title: str | None = None
    for line in source.lines:
        if match := _TITLE.match(line.text):
            title = match[1]
            if title in tables:
                source.fail(line, f"a second {title} table; give each host a file of its own")
            tables[title] = []
        elif not line.text.strip() or line.text.strip().startswith("Legend"):
            title = None if title is None or tables[title] else title
        elif title is not None:
            tables[title].append(line)
    return tables


def _table(
    source: SourceText, title: str, lines: Sequence[Line]
) -> tuple[list[str], list[list[str]]]:
    """Bus ids and cells. Fails when the table is not square."""
    if not lines:
        source.fail(source.lines[-1], f"the {title} table is empty")
    columns = lines[0].words
    if not all(_BUS_ID.fullmatch(word) for word in columns):
        source.fail(lines[0], f"the header of the {title} table must hold PCI bus ids")
    for index, line in enumerate(lines[1:]):
        expected = columns[index] if index < len(columns) else "none"
        if line.words[0] != expected or len(line.words) != len(columns) + 1:
            source.fail(
                line,
                f"row {line.words[0]} of {len(line.words) - 1} cells, where row {expected} of "
                f"{len(columns)} comes next",
            )
    if len(lines) - 1 != len(columns):
        source.fail(
            lines[-1], f"{len(lines) - 1} rows under {len(columns)} columns; it is cut short"
        )
    return columns, [line.words[1:] for line in lines[1:]]


def _gpus(buses: Sequence[str]) -> tuple[GpuFacts, ...]:
    return tuple(
        GpuFacts(label=f"GPU{index}", bus_id=normal_bus_id(bus)) for index, bus in enumerate(buses)
    )


def _json_gpus(source: SourceText) -> list[Mapping[str, Any]]:
    """GPUs of ``--json``: a list of objects with ``links``."""
    if not source.text.lstrip().startswith(("[", "{")):
        return []
    try:
        document = json.loads(source.text)
    except (ValueError, RecursionError):
        return []
    gpus = document if isinstance(document, list) else document.get("gpu_data") or []
    is_topology = isinstance(gpus, list) and all(
        isinstance(gpu, Mapping) and isinstance(gpu.get("links"), list) and gpu.get("bdf")
        for gpu in gpus
    )
    return gpus if is_topology else []


def _from_json(source: SourceText, gpus: Sequence[Mapping[str, Any]]) -> HostFacts:
    buses = [str(gpu["bdf"]) for gpu in gpus]
    labels = [f"GPU{index}" for index in range(len(buses))]
    for gpu in gpus:
        linked = [str(link.get("bdf")) for link in gpu["links"] if isinstance(link, Mapping)]
        if linked != buses:
            source.fail(
                None,
                f"links of {gpu['bdf']} go to {len(linked)} GPUs, not to the {len(buses)} listed",
            )

    def table(key: str) -> list[list[str]]:
        return [[str(link.get(key)) for link in gpu["links"]] for gpu in gpus]

    access = table("link_status")
    return HostFacts(
        gpus=_gpus(buses),
        paths=gpu_paths(source, labels, table("weight"), table("num_hops"), table("link_type")),
        peer_access={
            pair(labels[i], labels[j]): "OK" if access[i][j] == "ENABLED" else "NS"
            for i in range(len(labels))
            for j in range(i + 1, len(labels))
        },
    )
