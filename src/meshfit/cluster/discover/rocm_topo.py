"""``rocm-smi --showtopo``: weights, hops and kinds of links between GPUs, and their NUMA nodes.

Hops say 1 anywhere inside an xGMI fabric (ROCm/rocm-systems#5763); a weight of 15 is one xGMI link,
more goes over other GPUs.
"""

import re
from collections.abc import Mapping, Sequence

from meshfit.cluster.discover.amd import gpu_paths
from meshfit.cluster.discover.facts import GpuFacts, HostFacts, Reading
from meshfit.cluster.discover.text import Line, SourceText

NAME = "rocm-smi --showtopo"

_TITLE = re.compile(
    r"=*\s*(Weight|Hops|Link Type|Link accessibility|Numa Nodes|End of ROCm SMI Log)\b"
)
_TABLE = re.compile(r"=*\s*(Weight|Hops|Link Type) between two GPUs")
_NUMA = re.compile(r"GPU\[(\d+)\]\s*:\s*\(Topology\) Numa Node:\s*(-?\d+)\s*$")
_TABLES = ("Weight", "Hops", "Link Type")


def recognizes(source: SourceText) -> bool:
    return any(
        _TABLE.search(line.text) or _NUMA.match(line.text)
        for part in source.by_host
        for line in part.lines
    )


def read(source: SourceText) -> Reading:
    hosts = tuple(_host(part) for part in source.by_host)
    return Reading(source=source.name, format=NAME, hosts=hosts)


def _host(source: SourceText) -> HostFacts:
    sections = _sections(source)
    tables = {title: _table(source, sections[title]) for title in _TABLES if title in sections}
    numa = _numa(source, sections.get("Numa Nodes", ()))
    has_end = "End of ROCm SMI Log" in sections
    if not has_end and ("Link Type" not in tables or not numa):
        source.fail(source.lines[-1], "ends before the link types, the NUMA nodes and the end line")
    counts = {title: len(table) for title, table in tables.items()}
    if numa:
        counts["Numa Nodes"] = len(numa)
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{title} {count}" for title, count in counts.items())
        source.fail(source.lines[-1], f"the sections are of different numbers of GPUs: {found}")
    labels = [f"GPU{index}" for index in range(next(iter(counts.values())))]
    if numa and sorted(numa) != list(range(len(numa))):
        source.fail(source.lines[-1], f"NUMA nodes are of GPUs {sorted(numa)}, not from 0 up")
    return HostFacts(
        host=source.host,
        gpus=tuple(
            GpuFacts(label=label, numa=_node(numa.get(index))) for index, label in enumerate(labels)
        ),
        paths=gpu_paths(source, labels, *(tables.get(title) for title in _TABLES)),
    )


def _sections(source: SourceText) -> dict[str, list[Line]]:
    sections: dict[str, list[Line]] = {}
    title = ""
    for line in source.lines:
        if match := _TITLE.match(line.text):
            title = match[1]
            if title in sections:
                source.fail(line, f"a second section {title}; give each host a file of its own")
            sections[title] = []
        elif title and line.text.strip():
            sections[title].append(line)
    return sections


def _table(source: SourceText, lines: Sequence[Line]) -> list[list[str]]:
    """Cells of a table whose header and rows are GPU0, GPU1 ... Fails when it is not whole."""
    header = next((line for line in lines if line.words[0] == "GPU0"), None)
    if header is None:
        source.fail(
            lines[0] if lines else source.lines[-1], "a section without its header GPU0 ..."
        )
    columns = header.words
    rows = [line for line in lines[lines.index(header) + 1 :] if line.words[0].startswith("GPU")]
    for index, line in enumerate(rows):
        if line.words[0] != f"GPU{index}" or len(line.words) != len(columns) + 1:
            source.fail(
                line,
                f"row {line.words[0]} of {len(line.words) - 1} cells where row GPU{index} of {len(columns)} comes next",
            )
    if len(rows) != len(columns) or columns != [f"GPU{i}" for i in range(len(columns))]:
        last = rows[-1] if rows else header
        source.fail(last, f"{len(rows)} rows under {len(columns)} columns; the table is cut short")
    return [line.words[1:] for line in rows]


def _numa(source: SourceText, lines: Sequence[Line]) -> Mapping[int, int]:
    nodes: dict[int, int] = {}
    for line in lines:
        if match := _NUMA.match(line.text):
            nodes[int(match[1])] = int(match[2])
        elif "Numa Node" in line.text:
            source.fail(line, f"{line.text.strip()!r} is no whole line of a NUMA node")
    return nodes


def _node(node: int | None) -> tuple[int, ...] | None:
    return None if node is None or node < 0 else (node,)
