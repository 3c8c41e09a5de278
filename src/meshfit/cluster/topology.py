"""Where a job runs: accelerators, and the nested domains that join them."""

import math
from dataclasses import dataclass
from typing import Literal

Source = Literal["spec", "measured", "typed", "guess"]
Transport = Literal["EFA"]
LevelKind = Literal["switch", "mesh", "bus", "torus"]
DeviceType = Literal["cuda", "cpu", "hpu", "xla"]
"""PyTorch's device type; ROCm calls itself ``cuda``. meshfit runs on ``cuda`` and ``cpu``."""


@dataclass(frozen=True, kw_only=True)
class AcceleratorSpec:
    """One accelerator (or one CPU rank), dense rates.

    Attributes:
        memory_bytes: what the driver reports as the whole memory, not the label on the box.
        peak_flops_per_s: dense peak by precision (``fp32``, ``tf32``, ``bf16``, ``fp16``, ``fp8``).
        matmul_fraction: achievable share of that peak on large matmuls.
        memory_bytes_per_s: memory bandwidth.
        host_link_bytes_per_s: to the host, one direction.
        power_limit_w: what the device is held to, in watts; None: as it is sold.
        source: where the figures come from, in words.
    """

    name: str
    device_type: DeviceType
    memory_bytes: int
    peak_flops_per_s: dict[str, float]
    matmul_fraction: float
    memory_bytes_per_s: float
    host_link_bytes_per_s: float | None = None
    power_limit_w: float | None = None
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Level:
    """One domain level; ``size`` counts members of the level inside it (first: accelerators).

    ``bandwidth_bytes_per_s`` is per accelerator and direction; ``oversubscription`` divides it for
    traffic that leaves the domains inside. ``transport`` names a network whose start is known to
    cost more than its hops (EFA); None: none such.
    """

    name: str
    size: int
    kind: LevelKind
    bandwidth_bytes_per_s: float
    latency_s: float
    oversubscription: float = 1.0
    rails: bool = False
    transport: Transport | None = None
    source: Source = "typed"


@dataclass(frozen=True, kw_only=True)
class LabSpec:
    """Hosts that are made on this machine (``meshfit lab``): names in rank order, ranks on each.

    ``between_bytes_per_s`` is what one host may send; ``latency_s`` is added to what it sends.
    """

    hosts: tuple[str, ...]
    ranks_per_host: int
    between_bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Accelerators of one kind joined by nested levels, the innermost first.

    ``hosts`` are host names in rank order (empty: ``host0``, ``host1`` ... are made up).
    ``host_memory_bytes`` and ``storage_write_bytes_per_s`` are of one host.
    ``device_order`` says which device of its host each local rank takes, where domains hold devices
    that are not neighbours (empty: rank i takes device i).
    ``oversubscribed`` is set when several ranks share one core or device; ``shared_cores`` are then
    the cores that all of them share.
    """

    accelerator: AcceleratorSpec
    levels: tuple[Level, ...]
    gpus_per_host: int
    hosts: tuple[str, ...] = ()
    host_memory_bytes: int | None = None
    storage_write_bytes_per_s: float | None = None
    device_order: tuple[int, ...] = ()
    oversubscribed: bool = False
    shared_cores: int | None = None
    is_here: bool = False
    """Whether this is the machine meshfit runs on, so that tier 4 can run on it."""
    lab: LabSpec | None = None
    """Set when the hosts are a lab's, on the machine meshfit runs on."""

    @property
    def num_accelerators(self) -> int:
        return math.prod(level.size for level in self.levels)

    @property
    def num_hosts(self) -> int:
        return -(-self.num_accelerators // self.gpus_per_host)

    def host_of(self, rank: int) -> str:
        """Host name of a rank, ranks filling hosts in order."""
        index = rank // self.gpus_per_host
        return self.hosts[index] if index < len(self.hosts) else f"host{index}"

    def domain_sizes(self) -> tuple[int, ...]:
        """Accelerators in one domain of each level, innermost first (cumulative product)."""
        sizes: list[int] = []
        for level in self.levels:
            sizes.append(level.size * (sizes[-1] if sizes else 1))
        return tuple(sizes)
