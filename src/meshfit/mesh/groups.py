"""Which ranks form the groups of each axis, and where in the topology they sit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import Topology
from meshfit.mesh.candidates import IntArray
from meshfit.mesh.spec import AXES, LayoutSpec

EXPERT_AXES: tuple[str, ...] = ("edp", "ep", "etp")
"""Folded dense axes seen by the experts, outermost first: expert data, expert, expert tensor."""

DENSE_FOLD: tuple[str, ...] = ("dp_shard", "cp", "tp")
"""Axes that torchtitan folds for experts; ``EngineProfile.expert_fold`` says those of an engine."""

_JOINED: dict[str, tuple[str, ...]] = {"dp": ("dp_replicate", "dp_shard")}

GROUP_AXES: tuple[str, ...] = (*AXES, *_JOINED, *EXPERT_AXES)
"""Every name that ``groups`` takes."""


def coordinates(layout: LayoutSpec, rank: int, order: Sequence[str] = AXES) -> dict[str, int]:
    """Place of a rank on each axis; ``order`` names the axes from the outermost."""
    place = np.unravel_index(rank, _shape(layout, order))
    return {axis: int(index) for axis, index in zip(order, place, strict=True)}


def ranks_by_place(
    layout: LayoutSpec, axes: Sequence[str] = AXES, order: Sequence[str] = AXES
) -> NDArray[np.int64]:
    """The rank at each place of a mesh: a dimension for each of ``axes`` (as ``AXES`` has them), in
    whatever ``order`` the ranks are laid in. Axes that are left out must be of one rank."""
    moved = _ranks(layout, order).transpose([order.index(axis) for axis in AXES])
    return moved.reshape([getattr(layout, axis) for axis in axes])


def groups(
    layout: LayoutSpec,
    axis: str,
    order: Sequence[str] = AXES,
    fold: Sequence[str] = DENSE_FOLD,
) -> IntArray:
    """Ranks of every group along ``axis``, shape [num_groups, degree].

    ``axis`` is a mesh axis, ``dp`` (dp_replicate and dp_shard together), or one of ``ep``,
    ``etp`` and ``edp``, which divide the ranks of the axes in ``fold`` with ep x etp as their inner
    part (the order of torchtitan's and Megatron-Core's expert meshes). The groups of an axis
    partition the ranks.
    """
    if axis in EXPERT_AXES:
        return _expert_groups(layout, axis, order, fold)
    return _along(_ranks(layout, order), order, _JOINED.get(axis, (axis,)))


@dataclass(frozen=True, kw_only=True)
class GroupPlacement:
    """One group: its ranks, the hosts they are on, and the innermost level that holds them all."""

    axis: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    level: str

    @property
    def leaves_host(self) -> bool:
        return len(self.hosts) > 1

    def as_json(self) -> dict[str, Any]:
        return {
            "axis": self.axis,
            "ranks": list(self.ranks),
            "hosts": list(self.hosts),
            "level": self.level,
        }


def describe_groups(
    layout: LayoutSpec,
    topology: Topology,
    order: Sequence[str] = AXES,
    fold: Sequence[str] = DENSE_FOLD,
) -> tuple[GroupPlacement, ...]:
    """The groups of every axis with more than one rank, rank i being accelerator i."""
    degrees = {axis: getattr(layout, axis) for axis in order}
    if layout.ep > 1:
        degrees |= dict(zip(EXPERT_AXES, _expert_shape(layout, fold), strict=True))
    return tuple(
        _placement(axis, ranks, int(level), topology)
        for axis, degree in degrees.items()
        if degree > 1
        for members in [groups(layout, axis, order, fold)]
        for ranks, level in zip(members.tolist(), spanned_levels(members, topology), strict=True)
    )


def spanned_levels(members: IntArray, topology: Topology) -> IntArray:
    """For groups of shape [num_groups, degree]: index of the innermost level that holds each."""
    sizes = np.array(topology.domain_sizes())
    domains = members[:, None, :] // sizes[None, :, None]
    held = (domains == domains[:, :, :1]).all(axis=2)
    return np.asarray(held.argmax(axis=1), dtype=np.int64)


def _placement(axis: str, ranks: list[int], level: int, topology: Topology) -> GroupPlacement:
    hosts = dict.fromkeys(topology.host_of(rank) for rank in ranks)
    return GroupPlacement(
        axis=axis, ranks=tuple(ranks), hosts=tuple(hosts), level=topology.levels[level].name
    )


def _shape(layout: LayoutSpec, order: Sequence[str]) -> tuple[int, ...]:
    return tuple(getattr(layout, axis) for axis in order)


def _ranks(layout: LayoutSpec, order: Sequence[str]) -> NDArray[np.int64]:
    return np.arange(layout.world_size, dtype=np.int64).reshape(_shape(layout, order))


def _along(ranks: NDArray[np.int64], order: Sequence[str], axes: Sequence[str]) -> IntArray:
    """Rows of ``ranks`` that differ only in ``axes``."""
    others = [axis for axis in order if axis not in axes]
    inner = [axis for axis in order if axis in axes]
    degree = math.prod(ranks.shape[order.index(axis)] for axis in inner)
    moved = ranks.transpose([order.index(axis) for axis in (*others, *inner)])
    return moved.reshape(-1, degree)


def _expert_shape(layout: LayoutSpec, fold: Sequence[str]) -> tuple[int, int, int]:
    block = math.prod(getattr(layout, axis) for axis in fold)
    return block // (layout.ep * layout.etp), layout.ep, layout.etp


def _expert_groups(
    layout: LayoutSpec, axis: str, order: Sequence[str], fold: Sequence[str]
) -> IntArray:
    blocks = _along(_ranks(layout, order), order, fold)
    folded = blocks.reshape(-1, *_expert_shape(layout, fold))
    return _along(folded, ("block", *EXPERT_AXES), (axis,))
