"""What joins the GPUs of a host: NVLink or xGMI, over a switch or directly, and how fast."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshfit.cluster.discover.domains import Groups, equal_size, linked
from meshfit.cluster.discover.facts import GpuFacts, HostFacts, Path, pair
from meshfit.cluster.entries import AcceleratorEntry
from meshfit.cluster.topology import LevelKind, Source

_NVLINK_BYTES_PER_S = {"1": 20e9, "2": 25e9, "3": 25e9, "4": 25e9, "5": 50e9}
"""One link, one direction, by generation (NVIDIA's architecture papers)."""
_MOST_LINKS = 18
"""NVLinks of one GPU, at most (NVLink4 and 5)."""


@dataclass(frozen=True, kw_only=True)
class LinkDomains:
    """Groups of GPUs that links join.

    Attributes:
        size: of every group; None where they differ.
        kind: ``mesh``: links between pairs; ``switch``: each reaches any other at full rate.
        bytes_per_s: what a switch gives each member, or a mesh each pair; None: not known.
        source: of that rate.
        notes: what is irregular or had to be concluded.
    """

    groups: Groups
    size: int | None
    kind: LevelKind
    bytes_per_s: float | None
    source: Source
    notes: tuple[str, ...]


def link_domains(host: HostFacts, entry: AcceleratorEntry | None) -> LinkDomains | None:
    """The link domains of a host; None where no link joins two GPUs."""
    gpus = host.gpus or ()
    labels = [gpu.label for gpu in gpus]
    groups = linked(labels, host.paths)
    largest = max(groups, key=len, default=())
    if len(largest) < 2:
        return None
    notes: list[str] = []
    size = equal_size(groups)
    if size is None:
        sizes = ", ".join(str(len(group)) for group in groups)
        notes.append(f"links join groups of {sizes} GPUs: no level of one size")
    kind = _kind(host, largest, notes)
    links = _links(largest, host.paths)
    rate, source = _rate_per_link(gpus, entry)
    _check_capacity(largest, host, kind, notes)
    return LinkDomains(
        groups=groups,
        size=size,
        kind=kind,
        bytes_per_s=None if rate is None else rate * links,
        source=source,
        notes=tuple(notes),
    )


def _direct(members: Sequence[str], paths: Mapping[tuple[str, str], Path]) -> list[int]:
    """Links of every pair that has some."""
    found = [paths.get(pair(a, b)) for i, a in enumerate(members) for b in members[i + 1 :]]
    return [path.links for path in found if path is not None and path.is_link and path.links]


def _links(members: Sequence[str], paths: Mapping[tuple[str, str], Path]) -> int:
    """Links of the worst pair that has some of its own."""
    return min(_direct(members, paths), default=1)


def _kind(host: HostFacts, members: Sequence[str], notes: list[str]) -> LevelKind:
    """A pair is a switch of two. More are on a switch when the matrix shows more links than one GPU
    could spend on each peer; between 3 and 4 GPUs of few links that is undecided, and a mesh."""
    if len(members) == 2:
        return "switch"
    if host.has_switch is not None:
        return "switch" if host.has_switch else _mesh(host.paths, members, notes)
    direct = _direct(members, host.paths)
    pairs = len(members) * (len(members) - 1) // 2
    is_xgmi = any(path.kind == "XGMI" for path in host.paths.values())
    if is_xgmi or len(direct) < pairs or len(set(direct)) > 1:
        return _mesh(host.paths, members, notes)
    up = [gpu.links_bytes_per_s for gpu in host.gpus or () if gpu.label in members]
    if up and all(links is not None for links in up):
        return "switch" if max(len(links or ()) for links in up) == direct[0] else "mesh"
    if direct[0] * (len(members) - 1) > _MOST_LINKS:
        return "switch"
    notes.append(
        f"NV{direct[0]} between {len(members)} GPUs is taken as links between pairs; a switch that "
        f"shows only some of its GPUs would look the same"
    )
    return "mesh"


def _mesh(
    paths: Mapping[tuple[str, str], Path], members: Sequence[str], notes: list[str]
) -> LevelKind:
    direct = _direct(members, paths)
    pairs = len(members) * (len(members) - 1) // 2
    if len(direct) < pairs:
        notes.append(
            f"{pairs - len(direct)} of {pairs} pairs have no direct link; they go over other GPUs"
        )
    if len(set(direct)) > 1:
        found = ", ".join(map(str, sorted(set(direct))))
        notes.append(f"pairs have {found} links; the level counts the fewest")
    return "mesh"


def _rate_per_link(
    gpus: Sequence[GpuFacts], entry: AcceleratorEntry | None
) -> tuple[float | None, Source]:
    """As the driver reports it, else of the accelerator's generation."""
    reported = [rate for gpu in gpus for rate in gpu.links_bytes_per_s or ()]
    if reported:
        return min(reported), "spec"
    if entry is None:
        return None, "spec"
    generation = re.match(r"NVLink(\d)", entry.link_kind)
    if generation:
        return _NVLINK_BYTES_PER_S.get(generation[1]), "spec"
    return (entry.link_bytes_per_s or None), "spec"


def _check_capacity(
    members: Sequence[str], host: HostFacts, kind: LevelKind, notes: list[str]
) -> None:
    """Links that are up against those that the matrix shows, and links that are down."""
    for gpu in host.gpus or ():
        if gpu.links_down:
            up = len(gpu.links_bytes_per_s or ())
            notes.append(
                f"{gpu.label}: {gpu.links_down} of {up + gpu.links_down} NVLinks are inactive"
            )
        if gpu.links_bytes_per_s is None or gpu.label not in members:
            continue
        shown = [
            path.links
            for other in members
            if other != gpu.label
            and (path := host.paths.get(pair(gpu.label, other))) is not None
            and path.kind == "NV"
        ]
        expected = max(shown, default=0) if kind == "switch" else sum(shown)
        if shown and expected != len(gpu.links_bytes_per_s):
            notes.append(
                f"{gpu.label}: {len(gpu.links_bytes_per_s)} NVLinks are up, the matrix shows {expected}"
            )
