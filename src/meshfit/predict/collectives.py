"""What a collective costs over ranks that are placed in nested domains.

A group of ranks along one axis is described by its degree and its stride (the distance in ranks
between neighbours): with ranks filling domains in order, these say how many members share a domain
of each level. Each level then carries one leg of the collective.
"""

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import Level, Topology
from meshfit.predict.constants import TimeConstants, shipped_constants
from meshfit.predict.tables.chips import CHIP_OF, CHIPS
from meshfit.predict.tables.collectives import NodeCurve, node_curves

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
]
SERIALISATION = 1.2
"""Measured time over the slowest leg: 1.04-1.37 on two to eight nodes of A100, H100, B200 and
GB200 (nccl-tests figures in topology/collectives.csv), where the sum of legs is the other end."""
SHARED_CORE_WAIT_S = 2e-3
"""A guess: where ranks share cores, a collective waits until its slowest rank gets its turn on one,
about a slice of Linux's scheduler."""


@dataclass(frozen=True, kw_only=True)
class AxisGroup:
    """The ranks along one axis, for every layout.

    Attributes:
        degree: how many they are.
        members: for each level, innermost first, how many subgroups of the level inside meet in
            one domain; their product is the degree.
        depths: of a binary tree over those members.
    """

    degree: IntArray
    members: tuple[FloatArray, ...]
    depths: tuple[FloatArray, ...]

    @property
    def is_single(self) -> bool:
        """Whether no layout has more than one rank on this axis."""
        return bool(np.all(self.degree <= 1))


def place(topology: Topology, degree: IntArray, stride: IntArray) -> AxisGroup:
    """The group of an axis whose neighbours are ``stride`` ranks apart, ranks filling domains in
    order. Exact where domains and strides divide each other; else members spread evenly.
    """
    met_before = np.ones(degree.shape)
    members = []
    sizes = topology.domain_sizes()
    for index, size in enumerate(sizes):
        is_outermost = index == len(sizes) - 1
        met = degree if is_outermost else np.clip(size // stride, 1, degree)
        members.append(np.asarray(met / met_before))
        met_before = np.asarray(met, dtype=np.float64)
    depths = tuple(np.log2(here) for here in members)
    return AxisGroup(degree=degree, members=tuple(members), depths=depths)


def contended(topology: Topology, factor: float) -> Topology:
    """The topology with ``1 / factor`` of its bandwidth left between hosts, where others use it too."""
    if factor == 1.0:
        return topology
    levels = tuple(
        replace(level, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s / factor)
        if size > topology.gpus_per_host
        else level
        for level, size in zip(topology.levels, topology.domain_sizes(), strict=True)
    )
    return replace(topology, levels=levels)


class MeasuredCurves(Protocol):
    """Collectives as measured on this cluster or on its node type."""

    def seconds(self, kind: Collective, size_bytes: FloatArray, group: AxisGroup) -> FloatArray:
        """Seconds; NaN where no curve covers kind, placement and size."""


@dataclass(frozen=True, kw_only=True)
class CollectiveTime:
    """Seconds of one collective for every layout."""

    low: FloatArray
    middle: FloatArray
    high: FloatArray


@dataclass(frozen=True, kw_only=True)
class CollectiveCosts:
    """Costs on one topology: a curve measured on it where there is one; else that of its node type
    for what stays inside a node; else the formula.

    ``factor`` multiplies the last two (from calibration).
    """

    topology: Topology
    curves: MeasuredCurves | None = None
    factor: float = 1.0
    constants: TimeConstants | None = None

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """Of every level's bandwidth: what collectives achieve beside computation."""
        known = self.constants or shipped_constants()
        if self.topology.accelerator.name not in CHIPS:
            return (1.0,) * len(self.topology.levels)
        inside = self.topology.gpus_per_host
        return tuple(
            known["link.share" if size <= inside else "network.share"]
            for size in self.topology.domain_sizes()
        )

    @cached_property
    def gather_share(self) -> float:
        """Of the bandwidth between domains, what gathers and scatters achieve over whole domains:
        no switch helps them as it does an all_reduce."""
        known = self.constants or shipped_constants()
        return known["network.gather"] if self.topology.accelerator.name in CHIPS else 1.0

    @property
    def serialisation(self) -> float:
        """Time over the slowest leg: part of ``shares`` where these are known."""
        return 1.0 if self.topology.accelerator.name in CHIPS else SERIALISATION

    @cached_property
    def chip(self) -> str | None:
        """Whose measured curves hold inside a node: of the same chip behind the same links."""
        return (
            CHIP_OF.get(self.topology.accelerator.name) if _has_usual_node(self.topology) else None
        )

    def place(self, degree: IntArray, stride: IntArray) -> AxisGroup:
        """See ``place``."""
        return place(self.topology, degree, stride)

    def seconds(self, kind: Collective, size_bytes: FloatArray, group: AxisGroup) -> FloatArray:
        """Middle of ``time``."""
        if group.is_single:
            return np.zeros(group.degree.shape)
        slowest = np.max(_legs(kind, size_bytes, group, self), axis=0)
        middle = self._middle(slowest, _latency(kind, group, self.topology))
        measured = self._measured(kind, size_bytes, group)
        return middle if measured is None else np.where(np.isfinite(measured), measured, middle)

    def time(self, kind: Collective, size_bytes: FloatArray, group: AxisGroup) -> CollectiveTime:
        """Seconds of one collective, all groups of its axis running it at once; 0 for one rank.

        ``1.2 * max(legs)``, between ``max(legs)`` and ``sum(legs)``, each plus latency. Leaves out
        protocol and algorithm switches, in-network reduction, and other axes on the same links.

        Args:
            size_bytes: the whole buffer as nccl-tests counts it (doc/PERFORMANCE.md): for
                all_gather and reduce_scatter that of all ranks together, for all_to_all what one
                rank sends in all.
        """
        legs = _legs(kind, size_bytes, group, self)
        latency = _latency(kind, group, self.topology)
        slowest = np.max(legs, axis=0)
        low = (slowest + latency) * self.factor
        middle = self._middle(slowest, latency)
        high = np.maximum(middle, (np.sum(legs, axis=0) + latency) * self.factor)
        measured = self._measured(kind, size_bytes, group)
        if measured is not None:
            known = np.isfinite(measured)
            low, middle, high = (np.where(known, measured, t) for t in (low, middle, high))
        return CollectiveTime(low=low, middle=middle, high=high)

    def _middle(self, slowest_leg: FloatArray, latency: FloatArray) -> FloatArray:
        return np.asarray((slowest_leg * self.serialisation + latency) * self.factor)

    def _measured(
        self, kind: Collective, size_bytes: FloatArray, group: AxisGroup
    ) -> FloatArray | None:
        """Seconds by a curve of this cluster, else by that of the node type; NaN where neither
        covers the collective, None where none does."""
        inside = self._inside_node_s(kind, size_bytes, group)
        if self.curves is None:
            return inside
        here = np.where(group.degree > 1, self.curves.seconds(kind, size_bytes, group), np.nan)
        return here if inside is None else np.where(np.isfinite(here), here, inside)

    def _inside_node_s(
        self, kind: Collective, size_bytes: FloatArray, group: AxisGroup
    ) -> FloatArray | None:
        """Seconds by the curve of the node type; NaN where a group leaves its node."""
        curves = node_curves(self.chip, kind) if self.chip is not None else {}
        if not curves:
            return None
        stays = group.members[0] >= group.degree
        if not stays.any():
            return None
        sizes = np.broadcast_to(size_bytes, group.degree.shape)
        seconds = np.full(group.degree.shape, np.nan)
        for ranks, curve in curves.items():
            here = stays & (group.degree == ranks)
            if here.any():
                seconds[here] = curve.seconds(sizes[here]) / self.shares[0]
        return seconds * self.factor


@cache
def _full_bandwidth(chip: str, kind: Collective, ranks: int) -> float | None:
    """Bytes per second an accelerator sends in a large collective inside a node, as measured."""
    curve: NodeCurve | None = node_curves(chip, kind).get(ranks)
    if curve is None:
        return None
    size = float(np.exp2(curve.log_sizes[-1]))
    sent = (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks * size
    return sent / float(np.exp2(curve.log_seconds[-1]))


def _has_usual_node(topology: Topology) -> bool:
    """Whether the innermost level is the switch of one node, as where the curves were measured."""
    level = topology.levels[0]
    return level.kind == "switch" and level.size <= 8 and level.bandwidth_bytes_per_s >= 250e9


def _bandwidth(level: Level, members: FloatArray) -> FloatArray | float:
    """Bytes per second that one accelerator gets on a level, all of them sending.

    A switch gives each its full rate; a mesh one link per peer; a bus is shared by its domain.
    """
    rate = level.bandwidth_bytes_per_s / level.oversubscription
    if level.kind == "mesh":
        return np.asarray(rate * np.maximum(1.0, members - 1))
    if level.kind == "bus":
        return rate / level.size
    return rate


def _legs(
    kind: Collective, size_bytes: FloatArray, group: AxisGroup, costs: "CollectiveCosts"
) -> FloatArray:
    """Seconds of the leg on each level, [levels, N].

    all_reduce ``2 (m - 1) / m * S / inner``, all_gather and reduce_scatter half of it, with
    ``inner`` the members met on the levels inside, which share the buffer out among them.
    all_to_all: the share of peers first met at the level. A send crosses its outermost level.
    """
    inner = np.ones(group.degree.shape)
    legs = []
    for index, (level, here) in enumerate(zip(costs.topology.levels, group.members, strict=True)):
        sent = _sent(kind, here, inner, group.degree) * size_bytes
        bandwidth = _bandwidth(level, here) * costs.shares[index]
        if index > 0 and kind in ("all_gather", "reduce_scatter"):
            bandwidth = bandwidth * np.where(inner > 1, costs.gather_share, 1.0)
        if index == 0 and costs.chip is not None:
            measured = _full_bandwidth(costs.chip, kind, level.size)
            bandwidth = bandwidth if measured is None else measured * costs.shares[0]
        legs.append(sent / bandwidth)
        inner = inner * here
    return np.stack(legs)


def _sent(kind: Collective, here: FloatArray, inner: FloatArray, degree: IntArray) -> FloatArray:
    """What one accelerator sends on a level, as a share of the buffer."""
    match kind:
        case "all_reduce":
            return 2 * (here - 1) / here / inner
        case "all_gather" | "reduce_scatter":
            return (here - 1) / here / inner
        case "all_to_all":
            return inner * (here - 1) / degree
        case "broadcast" | "send_recv":
            return np.where(here > 1, 1.0, 0.0)


def _latency(kind: Collective, group: AxisGroup, topology: Topology) -> FloatArray:
    """Hops times the level's latency: a tree's depth on each level, twice for an all_reduce.

    Gathers and scatters go round a ring, which NCCL has no tree for: ``n - 1`` hops, of which one a
    domain is between domains (src/graph/tuning.cc); but a ring's hops inside a node overlap with
    those between nodes, so that each level counts its own members only.
    """
    wait_s = SHARED_CORE_WAIT_S if topology.oversubscribed else 0.0
    total = np.where(group.degree > 1, wait_s, 0.0)
    in_ring = kind in ("all_gather", "reduce_scatter")
    for index, (level, depth) in enumerate(zip(topology.levels, group.depths, strict=True)):
        hops = np.minimum(1.0, depth) if kind == "send_recv" else depth
        if in_ring and index > 0:
            hops = group.members[index] - 1
        total += hops * level.latency_s * (2 if kind == "all_reduce" else 1)
    return total
