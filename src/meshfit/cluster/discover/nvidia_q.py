"""``nvidia-smi -q``, whole or only its Fabric blocks (``grep -A4 Fabric``)."""

import re
from collections.abc import Mapping, Sequence

from meshfit.cluster.discover.facts import FabricFacts, GpuFacts, HostFacts, Reading
from meshfit.cluster.discover.pci import normal_bus_id
from meshfit.cluster.discover.text import Line, SourceText

NAME = "nvidia-smi -q"

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])\s*$")
_ENTRY = re.compile(r"(\s*)([^:]+?)\s+: ?(.*?)\s*$")
_OWN_KEYS = ("CliqueId", "ClusterUUID")
_KEYS = (*_OWN_KEYS, "State", "Status")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_STATES = ("Not Supported", "Not Started", "In Progress", "Completed", "N/A", "Unknown")

Values = Mapping[str, str]


def recognizes(source: SourceText) -> bool:
    lines = [line.text.strip() for part in source.by_host for line in part.lines]
    return any(
        line == "Fabric" or re.match(r"(CliqueId|ClusterUUID)\s+:", line) or _GPU.match(line)
        for line in lines
    )


def read(source: SourceText) -> Reading:
    notes: list[str] = []
    hosts = tuple(_host(part, notes) for part in source.by_host)
    return Reading(source=source.name, format=NAME, hosts=hosts, notes=tuple(dict.fromkeys(notes)))


def _host(source: SourceText, notes: list[str]) -> HostFacts:
    sections = _sections(source)
    gpus = tuple(
        _gpu(source, f"GPU{index}", bus_id, lines) for index, (bus_id, lines) in enumerate(sections)
    )
    whole = [gpu for gpu in gpus if gpu.bus_id]
    _check_attached(source, len(whole))
    if whole:
        return HostFacts(host=source.host, gpus=tuple(whole))
    fabrics = tuple(_fabrics(source))
    if any(fabric.state is None and fabric.domain for fabric in fabrics):
        notes.append("the fabric's state is not given; taken as completed")
    return HostFacts(host=source.host, fabrics=fabrics)


def _sections(source: SourceText) -> list[tuple[str, list[Line]]]:
    """Lines of each GPU by its bus id."""
    sections: list[tuple[str, list[Line]]] = []
    for line in source.lines:
        if match := _GPU.match(line.text.strip()):
            sections.append((normal_bus_id(match[1]), []))
        elif sections:
            sections[-1][1].append(line)
    return sections


def _check_attached(source: SourceText, gpus: int) -> None:
    """Fails when the log says that it is of more GPUs than it holds."""
    for line in source.lines:
        match = re.match(r"\s*Attached GPUs\s+: (\d+)\s*$", line.text)
        if match and int(match[1]) != gpus:
            last = source.lines[-1]
            source.fail(
                last, f"ends after {gpus} of {match[1]} GPUs (Attached GPUs, line {line.number})"
            )


def _gpu(source: SourceText, label: str, bus_id: str, lines: Sequence[Line]) -> GpuFacts:
    values = _paths(lines)
    fabric = next(iter(_fabrics(SourceText(source.name, tuple(lines)))), None)
    return GpuFacts(
        label=label,
        bus_id=bus_id,
        name=values.get("Product Name"),
        uuid=values.get("GPU UUID"),
        memory_bytes=_mebibytes(values.get("FB Memory Usage/Total")),
        free_bytes=_mebibytes(values.get("FB Memory Usage/Free")),
        pcie_generation=_number(values.get("PCIe Generation/Max")),
        pcie_width=_number((values.get("Link Width/Max") or "").removesuffix("x")),
        mig={"Enabled": True, "Disabled": False}.get(values.get("MIG Mode/Current", "")),
        fabric=fabric,
    )


def _paths(lines: Sequence[Line]) -> dict[str, str]:
    """``section/key`` -> value; a key of no section stands alone."""
    values: dict[str, str] = {}
    section, indent = "", -1
    for line in lines:
        entry = _ENTRY.match(line.text)
        depth = len(line.text) - len(line.text.lstrip())
        if entry is None:
            section, indent = line.text.strip(), depth
            continue
        prefix = f"{section}/" if depth > indent >= 0 else ""
        values.setdefault(prefix + entry[2], entry[3])
        values.setdefault(entry[2], entry[3])
    return values


def _fabrics(source: SourceText) -> list[FabricFacts]:
    """Every fabric block: from its title, or from a key of its own where the title was cut away, to
    the first line of something else or the first key again."""
    blocks: list[dict[str, str]] = []
    is_inside = False
    for line in source.lines:
        entry = _ENTRY.match(line.text)
        key = entry[2].strip() if entry else ""
        if line.text.strip() == "Fabric":
            blocks.append({})
            is_inside = True
        elif entry and (key in _OWN_KEYS or (is_inside and key in _KEYS)):
            if not is_inside or key in blocks[-1]:
                blocks.append({})
            blocks[-1][key] = _checked(source, line, key, entry[3])
            is_inside = True
        else:
            if is_inside and not blocks[-1]:
                source.fail(line, "a Fabric block without its State")
            is_inside = False
    if is_inside and not blocks[-1]:
        source.fail(source.lines[-1], "ends inside a Fabric block")
    return [_fabric(block) for block in blocks]


def _checked(source: SourceText, line: Line, key: str, value: str) -> str:
    if key == "ClusterUUID" and value != "N/A" and not _UUID.fullmatch(value):
        source.fail(line, f"ClusterUUID {value!r} is no UUID")
    if key == "CliqueId" and value != "N/A" and not value.isdigit():
        source.fail(line, f"CliqueId {value!r} is no number")
    if key == "State" and value not in _STATES:
        source.fail(line, f"fabric State {value!r}; known: {', '.join(_STATES)}")
    return value


def _fabric(block: Values) -> FabricFacts:
    values = {key: None if value == "N/A" else value for key, value in block.items()}
    return FabricFacts(
        state=values.get("State"),
        status=values.get("Status"),
        cluster_uuid=values.get("ClusterUUID"),
        clique_id=values.get("CliqueId"),
    )


def _mebibytes(value: str | None) -> int | None:
    match = re.fullmatch(r"(\d+) MiB", value or "")
    return int(match[1]) * 2**20 if match else None


def _number(value: str | None) -> int | None:
    return int(value) if value and value.isdigit() else None
