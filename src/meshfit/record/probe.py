"""What `meshfit probe` asks of its ranks, and the curves file that comes of it.

The file serves ``plan``, ``check`` and ``fit`` as curves measured on their own cluster. Bandwidths
are those of nccl-tests (doc/PERFORMANCE.md): algorithm bandwidth is the whole buffer over the time,
bus bandwidth that times the share of it that crosses a link, so that it can be held against the
link's rate.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from meshfit.record.schema import SCHEMA_VERSION
from meshfit.user_catalogue import user_folder

FILE_NAME = "curves.json"

PROBED_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """What every rank is told.

    Attributes:
        level_sizes: members of each level of the topology, innermost first.
        hosts: host of each rank, as planned; empty: any will do.
        smallest_bytes, largest_bytes: sizes are powers of ``step`` between them.
        budget_s: for all collectives together; large sizes are left out where it runs short.
        storage: folder that a file is written to; None: none is.
    """

    accelerator: str
    device_type: Literal["cpu", "cuda"]
    level_names: tuple[str, ...]
    level_sizes: tuple[int, ...]
    gpus_per_host: int
    hosts: tuple[str, ...] = ()
    smallest_bytes: int = 1024
    largest_bytes: int = 2**30
    step: int = 4
    budget_s: float = 120.0
    storage: str | None = None
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One size: the whole buffer as nccl-tests counts it, and the mean time of one collective."""

    size_bytes: int
    seconds: float
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class CollectiveCurve:
    """One collective over one shape of group.

    Attributes:
        members: for each level, innermost first, how many subgroups of the level inside meet.
        groups: that ran at once.
        points: by size; the first one's time is the latency.
    """

    collective: str
    members: tuple[int, ...]
    groups: int
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, kw_only=True)
class LinkRate:
    """What the first rank sends to the second, nothing else running; ``level`` is the outermost
    between."""

    first_rank: int
    second_rank: int
    level: str
    bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class GroupRate:
    """Seconds that one of several groups took for the same collective, all running at once."""

    ranks: tuple[int, ...]
    members: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class KernelRate:
    """FLOP/s of one kernel: ``matmul`` of m x n x k, ``attention`` of heads x length x head dim."""

    kernel: Literal["matmul", "attention"]
    dtype: str
    dims: tuple[int, ...]
    flops_per_s: float


@dataclass(frozen=True, kw_only=True)
class ProbeRecord:
    """A curves file.

    Attributes:
        measured_at: ISO 8601, UTC.
        source: ``meshfit probe``, or the log that it was read from.
        library: what carried out the collectives, with its version where known.
        hosts: of each rank, by rank.
        host_to_device, storage: bytes per second of one rank; None where not measured.
        cards: network cards of the first host and what their driver says they carry, bytes per
            second one way.
        absent: what was not measured -> why.
    """

    measured_at: str
    source: str
    accelerator: str
    library: str
    level_names: tuple[str, ...]
    level_sizes: tuple[int, ...]
    gpus_per_host: int
    hosts: tuple[str, ...]
    curves: tuple[CollectiveCurve, ...]
    links: tuple[LinkRate, ...] = ()
    groups: tuple[GroupRate, ...] = ()
    kernels: tuple[KernelRate, ...] = ()
    host_to_device_bytes_per_s: float | None = None
    storage_write_bytes_per_s: float | None = None
    cards: dict[str, float] | None = None
    absent: dict[str, str] | None = None
    schema_version: int = SCHEMA_VERSION


def default_curves_path() -> Path:
    """The person's own file, beside their catalogue."""
    return user_folder() / FILE_NAME


def bus_share(collective: str, ranks: int) -> float:
    """Bus over algorithm bandwidth: all_reduce ``2 (n - 1) / n``, gathers, scatters and exchanges
    ``(n - 1) / n``, sends 1 (nccl-tests, doc/PERFORMANCE.md)."""
    if collective in ("send_recv", "broadcast"):
        return 1.0
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


def curve_point(collective: str, ranks: int, size_bytes: int, seconds: float) -> CurvePoint:
    """A point with its bandwidths."""
    algorithm = size_bytes / seconds
    return CurvePoint(
        size_bytes=size_bytes,
        seconds=seconds,
        algorithm_bytes_per_s=algorithm,
        bus_bytes_per_s=algorithm * bus_share(collective, ranks),
    )
