"""``nvidia-smi --query-gpu=... --format=csv``: one row a GPU, with a header."""

import csv
import re

from meshfit.cluster.discover.facts import FabricFacts, GpuFacts, HostFacts, Reading
from meshfit.cluster.discover.pci import normal_bus_id
from meshfit.cluster.discover.text import Line, SourceText

NAME = "nvidia-smi --query-gpu"

_FIELDS = {
    "name": "name", "gpu_name": "name", "index": "index", "uuid": "uuid", "gpu_uuid": "uuid",
    "pci.bus_id": "bus_id", "gpu_bus_id": "bus_id",
    "memory.total": "memory", "memory.free": "free",
    "pcie.link.gen.max": "generation", "pcie.link.gen.gpumax": "generation_of_gpu",
    "pcie.link.width.max": "width", "mig.mode.current": "mig",
    "fabric.state": "state", "fabric.status": "status",
    "fabric.cluster_uuid": "cluster_uuid", "fabric.clusteruuid": "cluster_uuid",
    "fabric.clique_id": "clique_id", "fabric.cliqueid": "clique_id",
}  # fmt: skip
"""Current generation and width are left out: an idle link runs slower than it can."""
_OTHER = re.compile(r"[a-z_]+(\.[a-z_0-9]+)*( \[[^\]]*\])?")
_ABSENT = {"", "n/a", "[n/a]", "[not supported]", "not supported", "[unknown error]"}
_MEBIBYTES = re.compile(r"(\d+)(?: MiB)?")


def recognizes(source: SourceText) -> bool:
    return any(_header(part) is not None for part in source.by_host)


def read(source: SourceText) -> Reading:
    hosts = tuple(_host(part) for part in source.by_host)
    return Reading(source=source.name, format=NAME, hosts=hosts)


def _header(source: SourceText) -> Line | None:
    """A line of field names, at least one of them known."""
    for line in source.lines:
        fields = [field.strip() for field in line.text.split(",")]
        if not all(_OTHER.fullmatch(field) for field in fields):
            continue
        known = [field for field in fields if _field(field)]
        if len(known) > 1 or (known and known[0] not in ("name", "index", "uuid")):
            return line
    return None


def _field(title: str) -> str | None:
    return _FIELDS.get(title.partition(" [")[0].strip())


def _host(source: SourceText) -> HostFacts:
    header = _header(source)
    if header is None:
        source.fail(source.lines[0] if source.lines else None, "no header; leave out noheader")
    titles = [title.strip() for title in header.text.split(",")]
    gpus: list[GpuFacts] = []
    for line in source.lines[source.lines.index(header) + 1 :]:
        if not line.text.strip():
            continue
        cells = [cell.strip() for cell in next(csv.reader([line.text], skipinitialspace=True))]
        if len(cells) != len(titles):
            source.fail(
                line, f"{len(cells)} values under {len(titles)} titles (line {header.number})"
            )
        values = {
            field: None if cell.lower() in _ABSENT else cell
            for title, cell in zip(titles, cells, strict=True)
            if (field := _field(title))
        }
        gpus.append(_gpu(source, line, len(gpus), values))
    if not gpus:
        source.fail(header, "a header without a row")
    labels = [gpu.label for gpu in gpus]
    if sorted(labels) != sorted(f"GPU{index}" for index in range(len(gpus))):
        source.fail(
            header, f"the rows are of {', '.join(labels)}, not of GPU0 to GPU{len(gpus) - 1}"
        )
    return HostFacts(host=source.host, gpus=tuple(gpus))


def _gpu(source: SourceText, line: Line, row: int, values: dict[str, str | None]) -> GpuFacts:
    index = _count(source, line, "index", values.get("index"))
    fabric = FabricFacts(
        state=values.get("state"),
        status=values.get("status"),
        cluster_uuid=values.get("cluster_uuid"),
        clique_id=values.get("clique_id"),
    )
    bus_id = values.get("bus_id")
    generation = values.get("generation") or values.get("generation_of_gpu")
    return GpuFacts(
        label=f"GPU{row if index is None else index}",
        name=values.get("name"),
        uuid=values.get("uuid"),
        bus_id=None if bus_id is None else normal_bus_id(bus_id),
        memory_bytes=_memory(source, line, "memory.total", values.get("memory")),
        free_bytes=_memory(source, line, "memory.free", values.get("free")),
        pcie_generation=_count(source, line, "pcie.link.gen.max", generation),
        pcie_width=_count(source, line, "pcie.link.width.max", values.get("width")),
        mig={"enabled": True, "disabled": False}.get((values.get("mig") or "").lower()),
        fabric=None if fabric == FabricFacts() else fabric,
    )


def _count(source: SourceText, line: Line, title: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,6}", value):
        source.fail(line, f"{title} {value!r} is no whole number")
    return int(value)


def _memory(source: SourceText, line: Line, title: str, value: str | None) -> int | None:
    if value is None:
        return None
    match = _MEBIBYTES.fullmatch(value)
    if match is None:
        source.fail(line, f"{title} {value!r} is no size like 24564 MiB")
    return int(match[1]) * 2**20
