"""``nvidia-smi topo -m`` and ``topo -mp``: the matrix of paths between GPUs and network cards.

Columns are those of the header where it can be read (it may be glued), else the rows in their
order. Cells after the matrix are CPU affinity, NUMA affinity and the GPU's own NUMA node; any of
them may be empty. Anything that does not add up fails with its line: a cell too few would shift
all that follow.
"""

import re
from collections.abc import Sequence

from meshfit.cluster.discover.cpu_list import cpu_list
from meshfit.cluster.discover.facts import (
    GpuFacts,
    HostFacts,
    NicFacts,
    Path,
    PathKind,
    Reading,
    pair,
)
from meshfit.cluster.discover.matrix import (
    GPU_LABEL,
    Row,
    check_square,
    is_header,
    row_of,
    table_lines,
)
from meshfit.cluster.discover.text import Line, SourceText

NAME = "nvidia-smi topo -m"

_TOKENS: dict[str, PathKind] = {
    "SYS": "SYS", "SOC": "SYS", "NODE": "NODE", "PHB": "PHB",
    "PXB": "PXB", "PIX": "PIX", "PSB": "PIX",
}  # fmt: skip
"""SOC and PSB are what drivers before 2017 called SYS and (on one board) PIX."""
_NVLINK = re.compile(r"NV(\d{1,2})")
_TRAILING = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_NUMA_TITLE = re.compile(r"NUMA(?: Affinity)?(?!\s*ID)")
_LEGEND_ENTRY = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*$")
_RECOGNIZED = re.compile(
    r"^\s*GPU\d+\s.*?(?<!\S)(X|NV\d+|SYS|SOC|NODE|PHB|PXB|PIX)(?!\S)", re.MULTILINE
)
_PEER_STATUS = re.compile(r"^\s*GPU\d+\s.*?(?<!\S)(OK|CNS|GNS|TNS|NS|DR|U)(?!\S)", re.MULTILINE)
_HEADER = re.compile(r"^[^\S\n]*(GPU\d+\s*)+.*CPU Affinity", re.MULTILINE)


def recognizes(source: SourceText) -> bool:
    text = "\n".join(part.text for part in source.by_host)
    found = _RECOGNIZED.search(text) is not None or _HEADER.search(text) is not None
    return found and _PEER_STATUS.search(text) is None and "two GPUs" not in text


def read(source: SourceText) -> Reading:
    notes: list[str] = []
    hosts = tuple(_host(part, notes) for part in source.by_host)
    return Reading(source=source.name, format=NAME, hosts=hosts, notes=tuple(dict.fromkeys(notes)))


def _host(source: SourceText, notes: list[str]) -> HostFacts:
    lines = table_lines(source)
    header = lines[0] if is_header(lines[0]) else None
    written = lines[1:] if header else lines
    labels = [line.words[0] for line in written]
    columns = _columns(source, header, written) or labels
    rows = [row_of(source, line, len(columns)) for line in written]
    _check_rows(source, header, rows, columns, notes)
    cells = {
        (row.label, other): None if cell == "X" else _path(source, row, cell)
        for row in rows
        for other, cell in zip(columns, row.cells, strict=True)
    }
    check_square(source, rows, columns)
    titles = _titles(header, notes)
    names = _nic_legend(source, columns)
    paths = {pair(a, b): path for (a, b), path in cells.items() if path is not None}
    gpus = tuple(_gpu(source, row, titles, notes) for row in rows if GPU_LABEL.fullmatch(row.label))
    nics = tuple(
        NicFacts(label=label, name=names.get(label, None if label.startswith("NIC") else label))
        for label in columns
        if not GPU_LABEL.fullmatch(label)
    )
    if len(gpus) > 1 and not any(path.is_link for path in paths.values()):
        notes.append(
            "no pair has NVLink here; `topo -mp` hides NVLink, so that may only mean how it was asked"
        )
    return HostFacts(host=source.host, gpus=gpus, nics=nics, paths=paths)


def _columns(source: SourceText, header: Line | None, rows: Sequence[Line]) -> list[str]:
    """Devices that the header names, glued or not."""
    if header is None:
        return []
    named = re.split(r"CPU\s*Affinity|NUMA", header.text, maxsplit=1)[0]
    labels = {line.words[0] for line in rows}
    columns: list[str] = []
    for word in named.split():
        columns += _unglued(word, labels)
    twice = {label for label in columns if columns.count(label) > 1}
    if twice:
        source.fail(header, f"the header names {sorted(twice)[0]} twice")
    return columns


def _unglued(word: str, labels: set[str]) -> list[str]:
    """``GPU0GPU1mlx5_0`` as three; a word that is a row's label stays whole."""
    if word in labels:
        return [word]
    parts = re.findall(r"GPU\d+|NIC\d+|(?:(?!GPU\d|NIC\d).)+", word)
    return parts if re.match(r"GPU\d|NIC\d", word) else [word]


def _check_rows(
    source: SourceText,
    header: Line | None,
    rows: Sequence[Row],
    columns: Sequence[str],
    notes: list[str],
) -> None:
    """Every GPU has its row; network cards have all of theirs or none."""
    last = rows[-1].line
    labels = {row.label for row in rows}
    for row in rows:
        if row.label not in columns:
            source.fail(row.line, f"row {row.label} is not in the header (line {_number(header)})")
    missing = [label for label in columns if label not in labels]
    gpus = [label for label in missing if GPU_LABEL.fullmatch(label)]
    if gpus:
        source.fail(last, f"no row for {', '.join(gpus)} after this one; the matrix is cut short")
    numbers = [int(label[3:]) for label in columns if GPU_LABEL.fullmatch(label)]
    if numbers != list(range(len(numbers))):
        source.fail(header or rows[0].line, f"GPUs are numbered {numbers}, not from 0 up")
    nics = [label for label in columns if not GPU_LABEL.fullmatch(label)]
    if missing and len(missing) < len(nics):
        source.fail(
            last, f"no row for {', '.join(missing)} after this one; the matrix is cut short"
        )
    if missing:
        notes.append("rows of network cards are missing; their places are those the GPU rows say")


def _number(line: Line | None) -> int | str:
    return line.number if line else "none"


def _path(source: SourceText, row: Row, cell: str) -> Path:
    nvlink = _NVLINK.fullmatch(cell)
    if nvlink:
        return Path(kind="NV", links=int(nvlink[1]))
    if cell not in _TOKENS:
        known = ", ".join(("X", "NV#", *_TOKENS))
        source.fail(row.line, f"row {row.label}: {cell!r} is no path; known: {known}")
    return Path(kind=_TOKENS[cell])


def _titles(header: Line | None, notes: list[str]) -> tuple[str, ...]:
    """Columns after the matrix, as the header names them; in the driver's order without one."""
    if header is None:
        notes.append("no header; columns after the matrix are taken in the driver's order")
        return _TRAILING
    text = " ".join(header.words)
    cpu, own = "CPU Affinity" in text, "GPU NUMA ID" in text
    numa = _NUMA_TITLE.search(text.replace("GPU NUMA ID", "")) is not None
    return tuple(title for title, there in zip(_TRAILING, (cpu, numa, own), strict=True) if there)


def _gpu(source: SourceText, row: Row, titles: Sequence[str], notes: list[str]) -> GpuFacts:
    cells = dict(zip(titles, _trailing(source, row, titles, notes), strict=True))
    cpus, numa = cells.get("CPU Affinity"), cells.get("NUMA Affinity")
    own = cells.get("GPU NUMA ID")
    return GpuFacts(
        label=row.label,
        cpus=cpus if _numbers(source, row, "CPU Affinity", cpus) else None,
        numa=_numbers(source, row, "NUMA Affinity", numa),
        gpu_numa_id=(_numbers(source, row, "GPU NUMA ID", own) or (None,))[0],
    )


def _trailing(
    source: SourceText, row: Row, titles: Sequence[str], notes: list[str]
) -> list[str | None]:
    """Cells after the matrix, None where empty."""
    rest = row.rest.rstrip().lstrip(" ")
    if not rest:
        return [None] * len(titles)
    if not rest.startswith("\t"):
        return _spaced(source, row, titles, notes)
    cells = [cell.strip() for cell in rest.split("\t")[1:]]
    while len(cells) > len(titles) and (surplus := _surplus_empty(cells)) is not None:
        del cells[surplus]
    if len(cells) > len(titles):
        source.fail(
            row.line,
            f"row {row.label} has {rest.strip()!r} after the matrix, where {_named(titles)}",
        )
    return [cell or None for cell in cells] + [None] * (len(titles) - len(cells))


def _surplus_empty(cells: Sequence[str]) -> int | None:
    """The last empty cell before a written one: the driver puts two tabs after a narrow column."""
    return next((i for i in range(len(cells) - 2, -1, -1) if not cells[i] and cells[i + 1]), None)


def _spaced(
    source: SourceText, row: Row, titles: Sequence[str], notes: list[str]
) -> list[str | None]:
    """Cells with spaces between: with one too few, nothing says which is the empty one."""
    cells: list[str | None] = list(row.rest.split())
    if len(cells) == len(titles):
        return cells
    if len(cells) > len(titles):
        source.fail(
            row.line,
            f"row {row.label} has {row.rest.strip()!r} after the matrix, where {_named(titles)}",
        )
    for cell in cells:
        _numbers(source, row, "columns after the matrix", cell)
    notes.append(
        f"line {row.line.number}: {len(cells)} cells under {len(titles)} titles after the matrix; "
        f"which one is empty cannot be told, so all are left out"
    )
    return [None] * len(titles)


def _named(titles: Sequence[str]) -> str:
    return f"the columns are {', '.join(titles)}" if titles else "the header names no column"


def _numbers(source: SourceText, row: Row, title: str, cell: str | None) -> tuple[int, ...] | None:
    if cell is None or cell == "N/A":
        return None
    numbers = cpu_list(cell)
    if numbers is None:
        source.fail(row.line, f"row {row.label}: {cell!r} under {title} is no list like 0-3,8")
    return numbers


def _nic_legend(source: SourceText, columns: Sequence[str]) -> dict[str, str]:
    """Names of NIC0 ... Fails when a legend is there but does not name them all."""
    start = next((i for i, line in enumerate(source.lines) if "NIC Legend" in line.text), None)
    if start is None:
        return {}
    entries = [(line, _LEGEND_ENTRY.match(line.text)) for line in source.lines[start + 1 :]]
    names = {match[1]: match[2] for _, match in entries if match}
    missing = [c for c in columns if c.startswith("NIC") and c not in names]
    if missing:
        source.fail(source.lines[start], f"the NIC legend does not name {', '.join(missing)}")
    return names
