"""Orders in which the axes of a layout can be laid over the ranks, and what they mean for each."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError, nearest_name
from meshfit.mesh.groups import EXPERT_AXES, groups, spanned_levels
from meshfit.mesh.spec import AXES, LayoutSpec

SHARDING: tuple[str, ...] = ("dp_shard", "cp")
"""States are sharded over both, and gradients summed over these and ``dp_replicate``: the ranks of
either stay neighbours in every order."""
_DATA = ("dp_replicate", *SHARDING)


def orders(layout: LayoutSpec) -> list[tuple[str, ...]]:
    """Different orders of the axes, each from the outermost; axes of one rank come first.

    Data-parallel axes stay together (``SHARDING``), and with experts all axes that these are taken
    from do.
    """
    active = [axis for axis in AXES if getattr(layout, axis) > 1]
    single = tuple(axis for axis in AXES if axis not in active)
    return [
        (*single, *order)
        for order in permutations(active)
        if _is_allowed(order) and (layout.ep == 1 or _is_together(order, (*SHARDING, "tp")))
    ]


def _is_allowed(order: Sequence[str]) -> bool:
    return _is_together(order, SHARDING) and _is_together(order, _DATA)


def _is_together(order: Sequence[str], axes: Sequence[str]) -> bool:
    places = [order.index(axis) for axis in axes if axis in order]
    return not places or max(places) - min(places) + 1 == len(places)


def whole_order(axes: Sequence[str], usual: Sequence[str]) -> tuple[str, ...]:
    """An order of all axes in which ``axes`` come as they stand, from the outermost; those that
    are left out come as early as they can, one behind the other as in ``usual``.

    Raises:
        InputError: a name that is none or there twice, or data-parallel axes apart.
    """
    for axis in axes:
        if axis not in AXES:
            nearest = nearest_name(axis, AXES)
            hint = f"did you mean {nearest}?" if nearest else f"the axes are {', '.join(AXES)}"
            raise InputError(f"rank_order: {axis!r} is no axis of the mesh; {hint}")
    if len(set(axes)) < len(axes):
        raise InputError(f"rank_order {', '.join(axes)} names an axis twice")
    for order in permutations(usual):
        if _is_allowed(order) and [axis for axis in order if axis in axes] == list(axes):
            return order
    raise InputError(
        f"rank_order {', '.join(axes)}: {', '.join(_DATA)} must stay neighbours, and of these "
        f"{' and '.join(SHARDING)}, as states are sharded and gradients summed over them together"
    )


def same_order(order: Sequence[str], other: Sequence[str], layout: LayoutSpec) -> bool:
    """Whether two orders put every rank in the same place: those of axes of one rank do not count."""
    one, two = ([axis for axis in axes if getattr(layout, axis) > 1] for axes in (order, other))
    return one == two


def levels_of_axes(
    layout: LayoutSpec, topology: Topology, order: Sequence[str], fold: Sequence[str]
) -> dict[str, str]:
    """Axis -> name of the innermost level that holds each of its groups."""
    axes = [axis for axis in AXES if getattr(layout, axis) > 1]
    axes += [axis for axis in EXPERT_AXES[1:] if getattr(layout, axis) > 1]
    return {
        axis: topology.levels[
            int(spanned_levels(groups(layout, axis, order, fold), topology).max())
        ].name
        for axis in axes
    }


def ranks_in_order(
    layout: LayoutSpec, order: Sequence[str], engine_order: Sequence[str]
) -> tuple[int, ...]:
    """For each accelerator the rank that the engine gives what sits there under ``order``: the rank
    order by which an engine that lays its axes in ``engine_order`` gets this placement."""
    shape = tuple(getattr(layout, axis) for axis in engine_order)
    ranks = np.arange(layout.world_size).reshape(shape)
    moved = ranks.transpose([engine_order.index(axis) for axis in order])
    return tuple(int(rank) for rank in moved.ravel())
