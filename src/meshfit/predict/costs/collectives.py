"""What a collective costs over ranks that are placed in nested domains.

A group of ranks along one axis is described by its degree and its stride (the distance in ranks
between neighbours): with ranks filling domains in order, these say how many members share a domain
of each level. Each level then carries one leg of the collective.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import Level, Topology
from meshfit.predict.costs import gloo
from meshfit.predict.costs.constants import TimeConstants, link_constants, shipped_constants
from meshfit.predict.costs.links import LinkLaw, link_kind, pipelined_s
from meshfit.predict.costs.tables.chips import CHIP_OF, CHIPS
from meshfit.predict.costs.tables.collectives import node_curves

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
]
SERIALISATION = 1.2
"""Measured time over the slowest leg, where no other constants are known; the sum of legs is the other
end. From nccl-tests on two to eight nodes of A100, H100, B200 and GB200."""
SHARED_CORE_WAIT_S = 2e-3
"""Where ranks share cores, a message waits until the rank that takes it gets its turn on one: assumed to
be a slice of Linux's scheduler (``sched_base_slice``, a few ms). Over Gloo each step of a collective
waits so."""


@dataclass(frozen=True, kw_only=True)
class AxisGroup:
    """The ranks along one axis, for every layout.

    Attributes:
        degree: how many they are.
        members: for each level, innermost first, how many subgroups of the level inside meet in
            one domain; their product is the degree.
        depths: of a binary tree over those members.
        alike: layouts whose collectives on this axis are the same; None: none are known to be.
    """

    degree: IntArray
    members: tuple[FloatArray, ...]
    depths: tuple[FloatArray, ...]
    alike: "Alike | None" = None

    @cached_property
    def is_single(self) -> bool:
        """Whether no layout has more than one rank on this axis."""
        return bool(np.all(self.degree <= 1))


@dataclass(frozen=True, kw_only=True)
class Alike:
    """Layouts of which many exchange the same over the same ranks.

    Attributes:
        first: one layout of each kind; ``which``: the kind of every layout.
        ranks: those of the kinds.
    """

    first: IntArray
    which: IntArray
    ranks: AxisGroup


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


def pair_on(level: int, axis: AxisGroup) -> AxisGroup:
    """Two ranks that meet on a level, for every layout of an axis."""
    two, one = np.full(axis.degree.shape, 2.0), np.ones(axis.degree.shape)
    members = tuple(two if index == level else one for index in range(len(axis.members)))
    return AxisGroup(
        degree=np.full(axis.degree.shape, 2, dtype=np.int64),
        members=members,
        depths=tuple(np.log2(here) for here in members),
    )


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
class CollectiveCosts:
    """Costs on one topology: a curve measured on it where there is one; else that of its node type
    for what stays inside a node; else the formula (``links.LinkLaw`` where the accelerator is of
    the catalogue).

    Attributes:
        links: constants of the formula.
        is_alone: whether nothing is computed meanwhile, as when collectives are measured.
        uses_node_curves: whether curves of the node type are looked at.
    """

    topology: Topology
    curves: MeasuredCurves | None = None
    constants: TimeConstants | None = None
    links: TimeConstants | None = None
    is_alone: bool = False
    uses_node_curves: bool = True

    @cached_property
    def is_known(self) -> bool:
        """Whether collectives of such accelerators were measured somewhere."""
        return self.topology.accelerator.name in CHIPS

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """Of every level's bandwidth: what collectives achieve beside computation."""
        known = self.constants or shipped_constants()
        if self.is_alone or not self.is_known:
            return (1.0,) * len(self.topology.levels)
        inside = self.topology.gpus_per_host
        return tuple(
            known["link.share" if size <= inside else "network.share"]
            for size in self.topology.domain_sizes()
        )

    @cached_property
    def link_constants(self) -> TimeConstants:
        return self.links or link_constants()

    @cached_property
    def link(self) -> str:
        """Kind of the link inside a node."""
        return link_kind(self.topology.accelerator.name, self.topology.levels[0].kind)

    def sharing(self, level: Level) -> float:
        """Power of a bus's size that divides its rate."""
        is_guess = self.is_known and level.source == "guess"
        return self.link_constants["sharing.PCIe"] if is_guess else 1.0

    def law(self, kind: Collective) -> LinkLaw:
        """What one collective takes over these links."""
        return LinkLaw(constants=self.link_constants, collective=kind, kind=self.link)

    @cached_property
    def chip(self) -> str | None:
        """Whose measured curves hold inside a node: of the same chip behind the same links."""
        if not (self.uses_node_curves and _has_usual_node(self.topology)):
            return None
        return CHIP_OF.get(self.topology.accelerator.name)

    def place(self, degree: IntArray, stride: IntArray) -> AxisGroup:
        """See ``place``."""
        return place(self.topology, degree, stride)

    def seconds(self, kind: Collective, size_bytes: FloatArray, group: AxisGroup) -> FloatArray:
        """Seconds of one collective, all groups of its axis running it at once; 0 for one rank.

        Computed once for layouts that are alike.

        Args:
            size_bytes: the whole buffer as nccl-tests counts it (doc/PERFORMANCE.md): for
                all_gather and reduce_scatter that of all ranks together, for all_to_all what one
                rank sends in all.
        """
        if group.is_single:
            return np.zeros(group.degree.shape)
        if (alike := group.alike) is None:
            return self._seconds(kind, size_bytes, group)
        sizes = np.broadcast_to(size_bytes, group.degree.shape)[alike.first]
        return self._seconds(kind, sizes, alike.ranks)[alike.which]

    def _seconds(self, kind: Collective, size_bytes: FloatArray, group: AxisGroup) -> FloatArray:
        formula = self.formula_s(kind, size_bytes, group)
        measured = self._measured(kind, size_bytes, group)
        return formula if measured is None else np.where(np.isfinite(measured), measured, formula)

    def formula_s(self, kind: Collective, size_bytes: FloatArray, group: AxisGroup) -> FloatArray:
        """Seconds without any curve of its own: of the slowest leg with what starts it."""
        if self.topology.accelerator.device_type == "cpu":
            return _over_gloo_s(kind, size_bytes, group, self.topology)
        legs = _legs(kind, size_bytes, group, self)
        if not self.is_known:
            slowest = np.max(legs, axis=0) * SERIALISATION
            return np.asarray(slowest + _latency(kind, group, self.topology))
        start = _start(kind, group, self)
        law, network_ramp = self.law(kind), self.link_constants["network.ramp"]
        ramps = [law.ramp_inside, *(network_ramp for _ in legs[1:])]
        whole = [pipelined_s(start, leg, ramp) for leg, ramp in zip(legs, ramps, strict=True)]
        return np.asarray(np.max(whole, axis=0))

    def _measured(
        self, kind: Collective, size_bytes: FloatArray, group: AxisGroup
    ) -> FloatArray | None:
        """Seconds by a curve of this cluster, else by that of the node type; NaN where neither
        covers the collective, None where none does."""
        inside = self._inside_node_s(kind, size_bytes, group)
        if self.curves is None:
            return inside
        alone = self.curves.seconds(kind, size_bytes, group)
        here = np.where(group.degree > 1, alone / self._share_of(group), np.nan)
        return here if inside is None else np.where(np.isfinite(here), here, inside)

    def _share_of(self, group: AxisGroup) -> FloatArray:
        """Of ``shares`` that of the outermost level which a group crosses."""
        share = np.full(group.degree.shape, self.shares[0])
        for here, own in zip(group.members[1:], self.shares[1:], strict=True):
            share = np.where(here > 1, own, share)
        return share

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
        return seconds


def _has_usual_node(topology: Topology) -> bool:
    """Whether the innermost level is the switch of one node, as where the curves were measured."""
    level = topology.levels[0]
    return level.kind == "switch" and level.size <= 8 and level.bandwidth_bytes_per_s >= 250e9


def _bandwidth(level: Level, members: FloatArray, sharing: float) -> FloatArray | float:
    """Bytes per second that one accelerator gets on a level, all of them sending.

    A switch gives each its full rate; a mesh one link per peer; a bus is shared by its domain
    (``sharing`` 1), or in part where the box is known by its name only (``links.csv``).
    """
    rate = level.bandwidth_bytes_per_s / level.oversubscription
    if level.kind == "mesh":
        return np.asarray(rate * np.maximum(1.0, members - 1))
    if level.kind == "bus":
        return float(rate / level.size**sharing)
    return rate


def _over_gloo_s(
    kind: Collective, size_bytes: FloatArray, group: AxisGroup, topology: Topology
) -> FloatArray:
    """Seconds over Gloo: of the slowest level, and of every step that waits for the one before.

    Gloo has no reduce-scatter of tensors: PyTorch's ``ProcessGroupGloo`` all-reduces the whole buffer
    and each rank keeps its part.
    """
    ran = "all_reduce" if kind == "reduce_scatter" else kind
    inner = np.ones(group.degree.shape)
    slowest_s, hop_s = np.zeros_like(inner), np.zeros_like(inner)
    for level, here in zip(topology.levels, group.members, strict=True):
        share = gloo.sent(ran, here, inner, group.degree)
        slowest_s = np.maximum(slowest_s, share * size_bytes / _bandwidth(level, here, 1.0))
        hop_s = np.maximum(hop_s, np.where(here > 1, level.latency_s, 0.0))
        inner = inner * here
    wait_s = SHARED_CORE_WAIT_S if topology.oversubscribed else 0.0
    return np.asarray(slowest_s + gloo.steps(ran, group.degree) * (hop_s + wait_s))


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
        bandwidth = _bandwidth(level, here, costs.sharing(level)) * costs.shares[index]
        if costs.is_known:
            bandwidth = bandwidth * _share(kind, index, here, inner, costs)
        legs.append(sent / bandwidth)
        inner = inner * here
    return np.stack(legs)


def _share(
    kind: Collective, index: int, here: FloatArray, inner: FloatArray, costs: "CollectiveCosts"
) -> FloatArray | float:
    """What large messages achieve of a level's rate, nothing else running.

    Between nodes no switch helps gathers and scatters over whole nodes as it does an all_reduce.
    """
    known = costs.link_constants
    if index > 0:
        over_nodes = (inner > 1) & (kind in ("all_gather", "reduce_scatter"))
        return known["network.line"] * np.where(over_nodes, known["network.gather"], 1.0)
    return costs.law(kind).share_inside(here)


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
    """Hops of all levels, and the wait for a core where ranks share cores."""
    wait_s = SHARED_CORE_WAIT_S if topology.oversubscribed else 0.0
    return np.where(group.degree > 1, wait_s, 0.0) + _hops_s(kind, group, topology, first=0)


def _hops_s(kind: Collective, group: AxisGroup, topology: Topology, *, first: int) -> FloatArray:
    """Hops times the level's latency, from level ``first`` outward: a tree's depth on each level,
    twice for an all_reduce.

    Gathers and scatters go round a ring, which NCCL has no tree for: ``n - 1`` hops, of which one a
    domain is between domains (src/graph/tuning.cc); but a ring's hops inside a node overlap with
    those between nodes, so that each level counts its own members only.
    """
    total = np.zeros(group.degree.shape)
    in_ring = kind in ("all_gather", "reduce_scatter")
    for index in range(first, len(topology.levels)):
        level, depth = topology.levels[index], group.depths[index]
        hops = np.minimum(1.0, depth) if kind == "send_recv" else depth
        if in_ring and index > 0:
            hops = group.members[index] - 1
        total += hops * level.latency_s * (2 if kind == "all_reduce" else 1)
    return total


def _start(kind: Collective, group: AxisGroup, costs: "CollectiveCosts") -> FloatArray:
    """Seconds of the smallest message: launch and hops inside a node, and hops between nodes, each
    the share of its latency that small messages have (``network.hop``)."""
    known, levels = costs.link_constants, costs.topology.levels
    start = costs.law(kind).start_s(group.members[0], levels[0].latency_s)
    outer = _hops_s(kind, group, costs.topology, first=1) * known["network.hop"]
    for level, here in zip(levels[1:], group.members[1:], strict=True):
        if level.transport is not None:
            outer = outer + np.where(here > 1, known[f"startup.{level.transport}"], 0.0)
    return np.asarray(np.where(group.degree > 1, start + outer, 0.0))
