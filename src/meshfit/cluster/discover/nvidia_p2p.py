"""``nvidia-smi topo -p2p r`` (or w, n, a, p): whether GPUs may reach each other's memory."""

import re

from meshfit.cluster.discover.facts import GpuFacts, HostFacts, Reading, pair
from meshfit.cluster.discover.matrix import (
    GPU_LABEL,
    check_square,
    is_header,
    row_of,
    table_lines,
)
from meshfit.cluster.discover.text import SourceText

NAME = "nvidia-smi topo -p2p"

STATUS = {
    "OK": "ok",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
    "U": "unknown",
}
_RECOGNIZED = re.compile(r"^\s*GPU\d+\s.*?(?<!\S)(" + "|".join(STATUS) + r")(?!\S)", re.MULTILINE)


def recognizes(source: SourceText) -> bool:
    return any(_RECOGNIZED.search(part.text) for part in source.by_host)


def read(source: SourceText) -> Reading:
    hosts = tuple(_host(part) for part in source.by_host)
    return Reading(source=source.name, format=NAME, hosts=hosts)


def _host(source: SourceText) -> HostFacts:
    lines = table_lines(source)
    header = lines[0] if is_header(lines[0]) else None
    written = lines[1:] if header else lines
    columns = header.words if header else [line.words[0] for line in written]
    rows = [row_of(source, line, len(columns)) for line in written]
    labels = [row.label for row in rows]
    for row in rows:
        if not GPU_LABEL.fullmatch(row.label) or row.rest.strip():
            source.fail(row.line, f"row {row.label} does not end after {len(columns)} GPUs")
        unknown = [cell for cell in row.cells if cell != "X" and cell not in STATUS]
        if unknown:
            known = ", ".join(("X", *STATUS))
            source.fail(row.line, f"row {row.label}: {unknown[0]!r} is no status; known: {known}")
    if sorted(labels) != sorted(columns):
        missing = [label for label in columns if label not in labels]
        source.fail(
            rows[-1].line, f"no row for {', '.join(missing) or 'a column'}; it is cut short"
        )
    check_square(source, rows, columns)
    access = {
        pair(row.label, other): cell
        for row in rows
        for other, cell in zip(columns, row.cells, strict=True)
        if other != row.label
    }
    gpus = tuple(GpuFacts(label=label) for label in columns)
    return HostFacts(host=source.host, gpus=gpus, peer_access=access)
