"""NCCL's and RCCL's topology: what NCCL_TOPO_DUMP_FILE writes, and what clouds ship to be read back.

A shipped file pairs PCI devices only: without ``<gpu>`` elements the class code says what a device
is. Without that either, places are read and the number of GPUs stays open.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshfit.cluster.discover.facts import (
    GpuFacts,
    HostFacts,
    NicFacts,
    Path,
    PathKind,
    Reading,
    pair,
)
from meshfit.cluster.discover.pci import (
    accelerator_name,
    device_kind,
    generation_of,
    normal_bus_id,
)
from meshfit.cluster.discover.text import SourceText
from meshfit.cluster.discover.xml_tree import Element, is_xml, parse_xml, root_tag

NAME = "NCCL topology XML"

_SWITCH_CLASS = "0x068000"
_MOST_CREDIBLE_BYTES_PER_S = 400e9
"""No network card of today reaches 3.2 Tbit/s; some drivers report a rate in another unit."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A device under its processor: the PCI devices above it, outermost first."""

    element: Element
    above: tuple[Element, ...]
    cpu: Element
    host: str | None


def recognizes(source: SourceText) -> bool:
    return is_xml(source) and root_tag(source) in ("system", "graphs")


def read(source: SourceText) -> Reading:
    root = parse_xml(source)
    if root.tag == "graphs":
        source.fail(
            root.line,
            "an NCCL graph (rings and trees), no topology; NCCL_TOPO_DUMP_FILE writes one",
        )
    notes: list[str] = []
    cpus = list(root.find_all("cpu"))
    if not cpus:
        source.fail(root.line, "<system> has no <cpu>")
    hosts = _by_host(cpus)
    facts = tuple(_host(source, name, part, notes) for name, part in hosts.items())
    return Reading(source=source.name, format=NAME, hosts=facts, notes=tuple(dict.fromkeys(notes)))


def _by_host(cpus: Sequence[Element]) -> dict[str | None, list[Element]]:
    """Processors by ``host_hash``, which NCCL writes where one XML holds several hosts (MNNVL)."""
    hosts: dict[str | None, list[Element]] = {}
    for cpu in cpus:
        hosts.setdefault(cpu.get("host_hash"), []).append(cpu)
    return hosts if len(hosts) > 1 else {None: list(cpus)}


def _host(
    source: SourceText, name: str | None, cpus: Sequence[Element], notes: list[str]
) -> HostFacts:
    numa = {id(cpu): _whole(source, cpu, "numaid") for cpu in cpus}
    places = [place for cpu in cpus for place in _places(cpu)]
    gpus = _gpu_places(source, places, notes)
    nics = _nic_places(source, places, notes)
    labelled = {**gpus, **nics}
    links = _links(source, gpus, notes)
    paths = {
        pair(a, b): links.get(pair(a, b)) or _pci_path(labelled[a], labelled[b], numa)
        for a in labelled
        for b in labelled
        if a < b
    }
    has_gpus = bool(gpus)
    targets = [e for place in gpus.values() for e in place.element.find_all("nvlink")]
    return HostFacts(
        host=name,
        gpus=tuple(_gpu(source, label, place, numa) for label, place in gpus.items())
        if has_gpus
        else None,
        nics=tuple(_nic(source, label, place, numa, notes) for label, place in nics.items()),
        paths=paths,
        numa_nodes=tuple(sorted({node for node in numa.values() if node >= 0})),
        has_switch=any(e.get("tclass") == _SWITCH_CLASS for e in targets) if targets else None,
    )


def _places(cpu: Element) -> Iterator[_Place]:
    """Every PCI device and network below a processor."""

    def walk(element: Element, above: tuple[Element, ...]) -> Iterator[_Place]:
        for child in element.children:
            if child.tag in ("pci", "net"):
                yield _Place(element=child, above=above, cpu=cpu, host=cpu.get("host_hash"))
            inner = (*above, child) if child.tag == "pci" else above
            yield from walk(child, inner)

    return walk(cpu, ())


def _gpu_places(
    source: SourceText, places: Sequence[_Place], notes: list[str]
) -> dict[str, _Place]:
    """GPUs by label: those with a ``<gpu>`` in the order of ``dev``, else those of a GPU's class."""
    pci = [place for place in places if place.element.tag == "pci"]
    detected = [place for place in pci if any(c.tag == "gpu" for c in place.element.children)]
    if detected:
        order = {id(place): _device_number(source, place) for place in detected}
        detected.sort(key=lambda place: order[id(place)])
        numbers = list(order.values())
        if len(set(numbers)) != len(numbers):
            twice = Counter(numbers).most_common(1)[0][0]
            source.fail(detected[0].element.line, f"dev={twice} is there twice")
        return {f"GPU{order[id(place)]}": place for place in detected}
    by_class = [place for place in pci if _kind(place.element) == "gpu"]
    unclassed = sum(1 for place in pci if place.element.get("class") is None)
    if unclassed and not by_class:
        notes.append(
            f"neither <gpu> nor a class code: nothing says which of {unclassed} PCI devices are GPUs"
        )
    elif by_class:
        notes.append(
            "no <gpu>: GPUs are told by their PCI class, in the order of the file; NVLink is not in it"
        )
    return {f"GPU{index}": place for index, place in enumerate(by_class)}


def _device_number(source: SourceText, place: _Place) -> int:
    gpu = next(child for child in place.element.children if child.tag == "gpu")
    return _whole(source, gpu, "dev")


def _nic_places(
    source: SourceText, places: Sequence[_Place], notes: list[str]
) -> dict[str, _Place]:
    """Networks by label where there are ``<net>``, else the PCI devices of a network card's class."""
    nets = [place for place in places if place.element.tag == "net"]
    if nets:
        return {f"NIC{index}": place for index, place in enumerate(nets)}
    cards = [place for place in places if place.element.tag == "pci"]
    cards = [place for place in cards if _kind(place.element) == "nic"]
    return {f"NIC{index}": place for index, place in enumerate(cards)}


def _kind(element: Element) -> str | None:
    return device_kind(element.get("class") or "", element.get("vendor") or "")


def _links(
    source: SourceText, gpus: Mapping[str, _Place], notes: list[str]
) -> dict[tuple[str, str], Path]:
    """Paths over links of their own. All whose links go to a switch reach each other by all of them."""
    by_bus = {_bus_id(place.element): label for label, place in gpus.items()}
    switched: dict[str, int] = {}
    paths: dict[tuple[str, str], Path] = {}
    for label, place in gpus.items():
        for link in (*place.element.find_all("nvlink"), *place.element.find_all("xgmi")):
            count = _whole(source, link, "count")
            kind: PathKind = "XGMI" if link.tag == "xgmi" else "NV"
            target = by_bus.get(normal_bus_id(link.get("target") or ""))
            if link.get("tclass") == _SWITCH_CLASS:
                switched[label] = switched.get(label, 0) + count
            elif target == label:
                notes.append(
                    f"{label}: {count} links whose target is itself; which GPU they join is not said"
                )
            elif target is None:
                notes.append(
                    f"{label}: {count} links to {link.get('target')}, which is no GPU here"
                )
            else:
                paths[pair(label, target)] = Path(kind=kind, links=count)
    for a, from_a in switched.items():
        for b, from_b in switched.items():
            if a < b:
                paths[pair(a, b)] = Path(kind="NV", links=min(from_a, from_b))
    return paths


def _pci_path(a: _Place, b: _Place, numa: Mapping[int, int]) -> Path:
    """As nvidia-smi would call it: PIX over one bridge, PXB over several, PHB over the processor."""
    if a.cpu is not b.cpu:
        return Path(kind="SYS")
    ways = [(*place.above, place.element) for place in (a, b)]
    shared = 0
    while all(len(way) > shared for way in ways) and ways[0][shared] is ways[1][shared]:
        shared += 1
    if not shared:
        return Path(kind="PHB")
    if any(_is_device(way[shared - 1]) for way in ways):  # two ports of one card
        return Path(kind="PIX")
    between = sum(_is_bridge(step) for way in ways for step in way[shared:-1])
    return Path(kind="PIX" if not between else "PXB")


def _is_bridge(element: Element) -> bool:
    return bool(element.children) and element.tag == "pci" and not _is_device(element)


def _is_device(element: Element) -> bool:
    return any(child.tag in ("gpu", "nic", "net") for child in element.children)


def _gpu(source: SourceText, label: str, place: _Place, numa: Mapping[int, int]) -> GpuFacts:
    element = place.element
    node = numa[id(place.cpu)]
    width = element.get("link_width") or "0"
    return GpuFacts(
        label=label,
        name=accelerator_name(
            element.get("vendor") or "",
            element.get("device") or "",
            element.get("subsystem_device") or "",
        ),
        bus_id=_bus_id(element),
        numa=(node,) if node >= 0 else None,
        pcie_generation=generation_of(element.get("link_speed") or ""),
        pcie_width=int(width) if width.isdigit() and int(width) else None,
    )


def _nic(
    source: SourceText, label: str, place: _Place, numa: Mapping[int, int], notes: list[str]
) -> NicFacts:
    element = place.element
    node = numa[id(place.cpu)]
    card = element if element.tag == "pci" else place.above[-1] if place.above else None
    bus_id = None if card is None else _bus_id(card)
    name = element.get("name") if element.tag == "net" else bus_id
    rate = None
    if element.tag == "net" and element.get("speed"):
        megabits = _whole(source, element, "speed")
        rate = megabits * 1e6 / 8
        if not 0 < rate <= _MOST_CREDIBLE_BYTES_PER_S:
            notes.append(f"{name}: speed {megabits} Mbit/s is not credible; left out")
            rate = None
    return NicFacts(
        label=label, name=name, bus_id=bus_id, numa=node if node >= 0 else None, bytes_per_s=rate
    )


def _bus_id(element: Element) -> str:
    return normal_bus_id(element.get("busid") or "")


def _whole(source: SourceText, element: Element, attribute: str) -> int:
    text = element.get(attribute) or ""
    if not text.removeprefix("-").isdigit():
        source.fail(element.line, f"<{element.tag} {attribute}={text!r}> is no whole number")
    return int(text)
