"""A layout on a topology: the axes, where their groups reach, and each rank's group on each axis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.mesh.groups import groups, spanned_levels
from meshfit.mesh.spec import AXES, LayoutSpec


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis with more than one rank.

    Attributes:
        level: the innermost level that holds the widest of its groups.
        group_of: group of every rank, counted from 0.
        bytes_per_step: what each of its ranks sends in a step; None: not known.
    """

    name: str
    degree: int
    level: str
    group_of: tuple[int, ...]
    bytes_per_step: float | None = None


@dataclass(frozen=True)
class RankColours:
    """Colours of ranks: the number of the group on each axis."""

    axes: Sequence[Axis] = field(default=())

    def of(self, rank: int) -> tuple[int, ...]:
        if any(rank >= len(axis.group_of) for axis in self.axes):
            return ()
        return tuple(axis.group_of[rank] for axis in self.axes)


def axes_on(
    layout: LayoutSpec,
    topology: Topology,
    order: Sequence[str] = AXES,
    sent_bytes: Mapping[str, float] | None = None,
) -> tuple[Axis, ...]:
    """The axes of a layout, the outermost first; ``sent_bytes`` by axis, of each rank in a step.

    Raises:
        InputError: the layout is of another number of ranks than the topology has accelerators.
    """
    if layout.world_size != topology.num_accelerators:
        raise InputError(
            f"the layout is of {layout.world_size} ranks, the topology of "
            f"{topology.num_accelerators} accelerators"
        )
    names = [name for name in order if getattr(layout, name) > 1]
    if layout.ep > 1:
        names.append("ep")
    return tuple(_axis(name, layout, topology, order, sent_bytes or {}) for name in names)


def _axis(
    name: str,
    layout: LayoutSpec,
    topology: Topology,
    order: Sequence[str],
    sent_bytes: Mapping[str, float],
) -> Axis:
    members = groups(layout, name, order)
    group_of = np.empty(layout.world_size, dtype=np.int64)
    for index, ranks in enumerate(members):
        group_of[ranks] = index
    widest = int(spanned_levels(members, topology).max())
    return Axis(
        name=name,
        degree=int(members.shape[1]),
        level=topology.levels[widest].name,
        group_of=tuple(group_of.tolist()),
        bytes_per_step=sent_bytes.get(name),
    )
