"""What an entry of the catalogue is, and how its names are compared."""

import re
from dataclasses import dataclass

from meshfit.cluster.topology import AcceleratorSpec, LevelKind, Transport

DEFAULT_MATMUL_FRACTION = 0.75
"""Share of the dense peak that large matmuls reach, where no measurement is known: the measured
ones (``matmul_bf16_flops_per_s``) lie between 0.51 (MI300X) and 0.97 (Gaudi2), most near 0.8."""


def normal_spelling(name: str) -> str:
    """A spelling without case, punctuation and the unit of its memory size (80G, 80GB, 80 GiB)."""
    without_unit = re.sub(r"(?<=\d)\s*gi?b?(?![a-z0-9])", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", without_unit)


@dataclass(frozen=True, kw_only=True)
class AcceleratorEntry:
    """One row of the catalogue.

    Attributes:
        memory_from: who reports ``spec.memory_bytes``: ``nvidia-smi``, ``rocm-smi``, ``torch``
            (its total memory), or ``label`` (the product's figure, in GiB).
        link_bytes_per_s: scale-up link of one accelerator in one direction (for a mesh or a torus
            that of one link); 0 without one.
        unverified: columns whose figure is from memory or nominal.
    """

    spec: AcceleratorSpec
    aliases: tuple[str, ...]
    vendor: str
    memory_from: str
    link_bytes_per_s: float
    link_kind: str
    unverified: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its name and every other one that is met."""
        return (self.name, *self.aliases)

    def is_spelt(self, normal: str) -> bool:
        """Whether ``normal`` (of ``normal_spelling``) is one of its spellings."""
        return normal in map(normal_spelling, self.spellings)


@dataclass(frozen=True, kw_only=True)
class NodeType:
    """How accelerators are joined inside a host, and what leaves it.

    Attributes:
        accelerators: names of what it is sold with; for an accelerator the first node type that
            names it is the default one.
        gpus_per_host: accelerators that one operating system sees.
        link_kind: of the scale-up link; None: PCIe only.
        link_domain: accelerators that the link joins (72 in an NVL72 rack, 2 in bridged pairs).
        link_bytes_per_s: the link's rate where it is not the accelerator's own figure.
        nic_bytes_per_s: of the network cards, per accelerator and direction; None: not known.
        transport: as of a ``Level``.
    """

    name: str
    aliases: tuple[str, ...]
    accelerators: tuple[str, ...]
    gpus_per_host: int
    link_kind: LevelKind | None
    link_domain: int
    link_bytes_per_s: float | None
    num_nics: int | None
    nic_bytes_per_s: float | None
    rails: bool
    oversubscription: float | None
    source: str
    unverified: tuple[str, ...]
    transport: Transport | None = None

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its name and every other one that is met."""
        return (self.name, *self.aliases)

    def is_spelt(self, normal: str) -> bool:
        """Whether ``normal`` (of ``normal_spelling``) is one of its spellings."""
        return normal in map(normal_spelling, self.spellings)
