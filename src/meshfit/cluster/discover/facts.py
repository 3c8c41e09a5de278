"""What a source says, before anything is concluded from it. What it does not say is None."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PathKind = Literal["NV", "XGMI", "PIX", "PXB", "PHB", "NODE", "SYS"]
"""How two devices reach each other, in the words of ``nvidia-smi topo -m``: links of their own (NV,
XGMI), one PCIe switch, several, the host bridge, the NUMA node, the link between NUMA nodes."""

PATH_KINDS: tuple[PathKind, ...] = ("NV", "XGMI", "PIX", "PXB", "PHB", "NODE", "SYS")
"""Nearest first."""

LINK_KINDS: tuple[PathKind, ...] = ("NV", "XGMI")


@dataclass(frozen=True, kw_only=True)
class Path:
    """``links``: NVLinks bonded, or xGMI links on the direct way (0: only over other GPUs)."""

    kind: PathKind
    links: int = 0

    @property
    def is_link(self) -> bool:
        return self.kind in LINK_KINDS

    def __str__(self) -> str:
        return f"{self.kind}{self.links}" if self.kind == "NV" else self.kind


@dataclass(frozen=True, kw_only=True)
class FabricFacts:
    """Where a GPU stands in an NVLink fabric that spans hosts."""

    state: str | None = None
    status: str | None = None
    cluster_uuid: str | None = None
    clique_id: str | None = None

    @property
    def domain(self) -> str | None:
        """The NVLink domain; None without one that is ready (NCCL's test: a UUID that is not zero).

        A plain 8-GPU NVSwitch host completes its registration too, so ``state`` decides nothing.
        """
        if self.cluster_uuid is None or not self.cluster_uuid.strip("0-"):
            return None
        if self.state not in (None, "Completed") or self.status not in (None, "Success"):
            return None
        return f"{self.cluster_uuid}.{self.clique_id}"


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """One GPU of a host.

    Attributes:
        label: what ``paths`` and messages call it: ``GPU0``.
        numa: NUMA nodes near it; several on machines whose firmware says so.
        gpu_numa_id: NUMA node that its own memory is (Grace).
        links_bytes_per_s: rate of every link that is up, one direction.
        links_down: links that are listed as inactive.
        pcie_bytes_per_s: of its own slot, one direction.
    """

    label: str
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    numa: tuple[int, ...] | None = None
    gpu_numa_id: int | None = None
    cpus: str | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None
    links_bytes_per_s: tuple[float, ...] | None = None
    links_down: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    mig: bool | None = None
    fabric: FabricFacts | None = None


@dataclass(frozen=True, kw_only=True)
class NicFacts:
    """One network card, or one port of it where ports have names of their own."""

    label: str
    name: str | None = None
    bus_id: str | None = None
    numa: int | None = None
    bytes_per_s: float | None = None

    @property
    def shown_name(self) -> str:
        return self.name or self.label


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What one source says about one host.

    Attributes:
        host: its name; None where the source does not say.
        gpus: None where the source does not say which there are.
        paths: between devices, by their labels in either order.
        peer_access: status of ``topo -p2p`` by pairs of GPU labels (``OK``, ``GNS`` ...).
        numa_nodes: NUMA nodes with processors; None where not said.
        cpus: logical processors of each of them.
        fabrics: NVLink fabric blocks that no GPU of the source can be matched to.
        has_switch: whether a switch joins the links; None where not said.
    """

    host: str | None = None
    gpus: tuple[GpuFacts, ...] | None = None
    nics: tuple[NicFacts, ...] | None = None
    paths: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    peer_access: Mapping[tuple[str, str], str] = field(default_factory=dict)
    numa_nodes: tuple[int, ...] | None = None
    cpus: Mapping[int, int] = field(default_factory=dict)
    fabrics: tuple[FabricFacts, ...] = ()
    has_switch: bool | None = None
    gpus_per_host: int | None = None


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One tier of a network: the domains it divides the hosts into.

    ``domains``: name -> hosts. ``is_link``: hosts of a domain share an accelerator link (NVL72).
    ``oversubscription``: hosts' share of it over what leaves it; None where not known.
    """

    name: str
    domains: Mapping[str, tuple[str, ...]]
    is_link: bool = False
    rails: bool = False
    oversubscription: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """The hosts of a cluster and the tiers that join them, the innermost first."""

    hosts: tuple[str, ...]
    tiers: tuple[Tier, ...]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one source says. ``notes``: what a reader of the figures should know of it."""

    source: str
    format: str
    hosts: tuple[HostFacts, ...] = ()
    network: NetworkFacts | None = None
    notes: tuple[str, ...] = ()


def pair(a: str, b: str) -> tuple[str, str]:
    """The key of two devices in ``paths``."""
    return (a, b) if a <= b else (b, a)
