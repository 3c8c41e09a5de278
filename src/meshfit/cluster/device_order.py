"""Which device of a host each rank takes, where domains hold devices that are not neighbours."""

from collections.abc import Iterable, Sequence

Groups = Sequence[Sequence[int]]
"""Devices of one host, by their index, domain by domain."""


def device_order(groupings: Iterable[Groups], count: int) -> tuple[int, ...]:
    """Devices such that every domain's are one behind the other; ranks take them in this order.

    Args:
        groupings: domains of each level inside a host, the innermost level first; those of one level
            lie inside those of the next.
        count: devices of the host.
    """
    order = list(range(count))
    for groups in groupings:
        place = {device: index for index, group in enumerate(groups) for device in group}
        order.sort(key=place.__getitem__)
    return tuple(order)


def nests(inner: Groups, outer: Groups) -> bool:
    """Whether every inner domain lies inside one of the outer ones."""
    place = {device: index for index, group in enumerate(outer) for device in group}
    return all(len({place[device] for device in group}) == 1 for group in inner)
