"""hwloc's XML (``lstopo topology.xml``): NUMA nodes, processors, GPUs and network cards.

Paths are by depth in its tree; GPUs without a PCI device of their own (GB10) are not in it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from meshfit.cluster.discover.facts import GpuFacts, HostFacts, NicFacts, Path, Reading, pair
from meshfit.cluster.discover.pci import accelerator_name, device_kind, normal_bus_id
from meshfit.cluster.discover.text import SourceText
from meshfit.cluster.discover.xml_tree import Element, is_xml, parse_xml, root_tag

NAME = "hwloc XML"

_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")


@dataclass(frozen=True, kw_only=True)
class _Device:
    """A PCI device: the bridges above it, outermost first, and the object that holds them."""

    element: Element
    bridges: tuple[Element, ...]
    near: Element

    @property
    def pci(self) -> tuple[str, str, str]:
        """Class, vendor and device."""
        match = _PCI_TYPE.match(self.element.get("pci_type") or "")
        return (match[1], match[2], match[3]) if match else ("", "", "")

    @property
    def kind(self) -> str | None:
        return device_kind(self.pci[0], self.pci[1])


def recognizes(source: SourceText) -> bool:
    return is_xml(source) and root_tag(source) == "topology"


def read(source: SourceText) -> Reading:
    root = parse_xml(source)
    machine = next(root.find_all("object"), None)
    if machine is None:
        source.fail(root.line, "<topology> has no <object>")
    nodes = [o for o in root.find_all("object") if o.get("type") == "NUMANode"]
    devices = list(_devices(machine, machine, ()))
    gpus = {f"GPU{i}": d for i, d in enumerate(d for d in devices if d.kind == "gpu")}
    nics = {f"NIC{i}": d for i, d in enumerate(d for d in devices if d.kind == "nic")}
    both = {**gpus, **nics}
    numa = tuple(sorted(_number(source, node) for node in nodes))
    host = HostFacts(
        gpus=tuple(_gpu(label, d) for label, d in gpus.items()),
        nics=tuple(_nic(label, d) for label, d in nics.items()),
        paths={pair(a, b): _path(both[a], both[b]) for a in both for b in both if a < b},
        numa_nodes=numa,
        cpus={_number(source, node): _processors(node) for node in nodes},
    )
    notes = () if gpus else ("no GPU among the PCI devices",)
    return Reading(source=source.name, format=NAME, hosts=(host,), notes=notes)


def _devices(element: Element, near: Element, bridges: tuple[Element, ...]) -> Iterator[_Device]:
    for child in element.children:
        if child.tag != "object":
            continue
        match child.get("type"):
            case "PCIDev":
                yield _Device(element=child, bridges=bridges, near=near)
            case "Bridge":
                yield from _devices(child, near, (*bridges, child))
            case _:
                yield from _devices(child, child, ())


def _numa_of(device: _Device) -> tuple[int, ...] | None:
    """NUMA nodes of the object the device hangs on, from its node set (a mask of 32-bit words)."""
    bits = _mask(device.near.get("nodeset"))
    return tuple(i for i in range(bits.bit_length()) if bits >> i & 1) or None


def _gpu(label: str, device: _Device) -> GpuFacts:
    _, vendor, number = device.pci
    model = next(
        (i.get("value") for i in device.element.children if i.get("name") == "PCIDevice"), None
    )
    return GpuFacts(
        label=label,
        name=accelerator_name(vendor, number) or model,
        bus_id=normal_bus_id(device.element.get("pci_busid") or ""),
        numa=_numa_of(device),
    )


def _nic(label: str, device: _Device) -> NicFacts:
    """Named as the verbs device (mlx5_0) where it has one, else as the interface (eth0)."""
    os_devices = [o for o in device.element.children if o.get("type") == "OSDev"]
    names = [o.get("name") or "" for o in os_devices]
    verbs = [
        name for name in names if re.match(r"(mlx|qib|hfi|bnxt_re|irdma|cxi|efa|rdmap|rocep)", name)
    ]
    numa = _numa_of(device)
    return NicFacts(
        label=label,
        name=next(iter(verbs or names), None)
        or normal_bus_id(device.element.get("pci_busid") or ""),
        bus_id=normal_bus_id(device.element.get("pci_busid") or ""),
        numa=numa[0] if numa and len(numa) == 1 else None,
    )


def _path(a: _Device, b: _Device) -> Path:
    """Over the innermost bridge both are below (the outermost is the host bridge), else by place."""
    if a.near is not b.near:
        return Path(kind="SYS")
    shared = 0
    while all(len(d.bridges) > shared for d in (a, b)) and a.bridges[shared] is b.bridges[shared]:
        shared += 1
    match shared:
        case 0:
            return Path(kind="NODE")
        case 1:
            return Path(kind="PHB")
        case _:
            is_one = len(a.bridges) == len(b.bridges) == shared
            return Path(kind="PIX" if is_one else "PXB")


def _processors(node: Element) -> int:
    return _mask(node.get("cpuset")).bit_count()


def _mask(text: str | None) -> int:
    """A bitmap of 32-bit words, the highest first: ``0x000000ff,0xffffffff``; 0 for anything else."""
    words = (text or "").split(",")
    if not all(re.fullmatch(r"(0x[0-9a-fA-F]{1,8})?", word) for word in words):
        return 0
    bits = 0
    for word in words:
        bits = bits << 32 | int(word or "0", 16)
    return bits


def _number(source: SourceText, node: Element) -> int:
    text = node.get("os_index") or ""
    if not text.isdigit():
        source.fail(node.line, f"a NUMANode with os_index {text!r}")
    return int(text)
