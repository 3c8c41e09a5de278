"""What a profiled step consists of: computation, calls for communication, waits for input.

Times are seconds since the epoch, so that ranks of one host share a clock.
"""

from dataclasses import dataclass
from typing import Literal

from meshfit.measure.intervals import Interval

Work = Literal["compute", "recompute", "optimizer"]
"""What a computation is for: forward, loss and backward; a forward again inside the backward; the
optimizer's step. A device's kernels are all ``compute``."""

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"]


@dataclass(frozen=True, kw_only=True)
class Computation:
    """One operation on the CPU, or one kernel of a device."""

    name: str
    work: Work
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call for communication, from when this rank made it until its data were there.

    Attributes:
        collective: its kind, as the call site says (Gloo itself does a reduce-scatter as another).
        axis: of the mesh whose ranks take part; ``world`` for all ranks where the mesh has several.
        group: name of the process group, the same on each of its ranks.
        ranks: of the group, global.
        source, target: global ranks of a send or a receive; None for a collective.
        size_bytes: what this rank puts in or, where that is more, takes out.
    """

    collective: Collective
    axis: str
    group: str
    ranks: tuple[int, ...]
    begin_s: float
    end_s: float
    size_bytes: int
    source: int | None = None
    target: int | None = None


@dataclass(frozen=True, kw_only=True)
class HostGap:
    """The host between two operations of one thread: Python and PyTorch's way to the next one.

    ``running_s`` of it the thread ran; ``core_wait_s`` it was ready and had no core, None where the
    kernel does not say.
    """

    begin_s: float
    end_s: float
    running_s: float
    core_wait_s: float | None


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """One profiled step of one rank. ``gaps`` are empty where the device's time was recorded."""

    rank: int
    begin_s: float
    end_s: float
    computations: tuple[Computation, ...]
    calls: tuple[Call, ...]
    input_waits: tuple[Interval, ...]
    gaps: tuple[HostGap, ...] = ()
