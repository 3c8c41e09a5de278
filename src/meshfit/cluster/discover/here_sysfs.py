"""What Linux says of this machine: NUMA nodes, network cards, and where devices sit on PCI."""

import re
from dataclasses import replace
from pathlib import Path as FilePath

from meshfit.cluster.discover.cpu_list import cpu_list
from meshfit.cluster.discover.facts import GpuFacts, HostFacts, NicFacts, Path, pair

_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")


def numa_cpus(sys: FilePath) -> dict[int, tuple[int, ...]]:
    """NUMA nodes with processors, and which."""
    nodes = {}
    for folder in (sys / "devices/system/node").glob("node[0-9]*"):
        cpus = cpu_list(_read(folder / "cpulist") or "")
        if cpus:
            nodes[int(folder.name.removeprefix("node"))] = cpus
    return dict(sorted(nodes.items()))


def with_sysfs(host: HostFacts, sys: FilePath) -> HostFacts:
    """``host`` with NUMA nodes, network cards, and the places of both."""
    gpus = tuple(_placed(gpu, sys) for gpu in host.gpus or ())
    nics = network_cards(sys)
    nodes = numa_cpus(sys)
    devices: list[GpuFacts | NicFacts] = [*gpus, *nics]
    paths = {
        pair(a.label, b.label): path
        for index, a in enumerate(devices)
        for b in devices[index + 1 :]
        if (path := _path(a, b, sys)) is not None
    }
    return replace(
        host,
        gpus=gpus,
        nics=nics,
        paths=paths | dict(host.paths),
        numa_nodes=tuple(nodes),
        cpus={node: len(cpus) for node, cpus in nodes.items()},
    )


def network_cards(sys: FilePath) -> tuple[NicFacts, ...]:
    """RDMA devices in the order of their names."""
    names = sorted(path.name for path in (sys / "class/infiniband").glob("*"))
    return tuple(_nic(f"NIC{index}", name, sys) for index, name in enumerate(names))


def card_rates(sys: FilePath) -> dict[str, float]:
    """Bytes per second, one direction, of every network card that is up: RDMA devices and network
    interfaces, by name. Those whose driver tells no rate are left out."""
    rates = {nic.shown_name: nic.bytes_per_s for nic in network_cards(sys) if nic.bytes_per_s}
    for folder in sorted((sys / "class/net").glob("*")):
        speed = _read(folder / "speed") or ""  # Mbit/s; -1 or unreadable where there is no link
        if speed.isdigit() and int(speed) > 0:
            rates[folder.name] = int(speed) * 1e6 / 8
    return rates


def _nic(label: str, name: str, sys: FilePath) -> NicFacts:
    folder = sys / "class/infiniband" / name
    device = (folder / "device").resolve()
    rate = _RATE.match(_read(next(iter(sorted(folder.glob("ports/*/rate"))), folder)) or "")
    return NicFacts(
        label=label,
        name=name,
        bus_id=device.name if device.exists() else None,
        numa=_node(device),
        bytes_per_s=float(rate[1]) * 1e9 / 8 if rate else None,
    )


def _placed(gpu: GpuFacts, sys: FilePath) -> GpuFacts:
    """A GPU with the NUMA node and processors of its PCI device."""
    if gpu.bus_id is None:
        return gpu
    device = sys / "bus/pci/devices" / gpu.bus_id
    node = _node(device)
    return replace(
        gpu,
        numa=gpu.numa or (None if node is None else (node,)),
        cpus=gpu.cpus or _read(device / "local_cpulist"),
    )


def _path(a: GpuFacts | NicFacts, b: GpuFacts | NicFacts, sys: FilePath) -> Path | None:
    """From the bridges above two devices; None where sysfs does not have one of them."""
    if a.bus_id is None or b.bus_id is None:
        return None
    folders = [sys / "bus/pci/devices" / bus_id for bus_id in (a.bus_id, b.bus_id)]
    if not all(folder.exists() for folder in folders):
        return None
    ways = [_bridges(folder.resolve()) for folder in folders]
    shared = 0
    while all(len(way) > shared for way in ways) and ways[0][shared] == ways[1][shared]:
        shared += 1
    if not shared:
        nodes = [_node(folder) for folder in folders]
        return Path(kind="NODE" if nodes[0] is not None and nodes[0] == nodes[1] else "SYS")
    if shared == 1:
        return Path(kind="PHB")
    return Path(kind="PIX" if all(len(way) - shared <= 1 for way in ways) else "PXB")


def _bridges(folder: FilePath) -> list[str]:
    """The host bridge and the bridges above a device, outermost first."""
    parts = folder.parts[:-1]
    start = next((i for i, part in enumerate(parts) if part.startswith("pci")), len(parts))
    return list(parts[start:])


def _node(device: FilePath) -> int | None:
    text = _read(device / "numa_node") or ""
    return int(text) if text.isdigit() else None


def _read(path: FilePath) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
