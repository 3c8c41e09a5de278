"""Whether ranks landed on the hosts that the layout was planned for."""

from collections.abc import Sequence
from itertools import groupby

import torch.distributed as dist

from meshfit.record.environment import host_name


class PlacementError(Exception):
    """Ranks sit on other hosts than planned."""


def require_placement(expected: Sequence[str]) -> None:
    """Every rank raises when any of them is not on its host. All ranks must call it.

    Args:
        expected: host name of each rank, by rank; empty: any will do.

    Raises:
        PlacementError: what was planned, what was found, and what most likely reordered them.
    """
    if not expected:
        return
    found = host_names()
    if found != list(expected):
        raise PlacementError(misplacement(expected, found))


def misplacement(expected: Sequence[str], found: Sequence[str]) -> str:
    """What went wrong, in words."""
    message = f"ranks are on {_in_runs(found)}, but were planned on {_in_runs(expected)}"
    planned = list(dict.fromkeys(expected))
    if list(dict.fromkeys(found)) == sorted(planned) != planned:
        message += (
            "; torchrun's c10d rendezvous orders hosts by name as text: name them so that this is "
            "the planned order (node02 before node10), or give each its --node-rank with "
            "--rdzv-backend=static"
        )
    return message


def host_names() -> list[str]:
    """Name of every rank's host, by rank."""
    mine = host_name()
    if not dist.is_initialized():
        return [mine]
    names: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(names, mine)
    return names


def _in_runs(hosts: Sequence[str]) -> str:
    """``node2 (2), node10 (2)`` for what each rank's host is, in rank order."""
    runs = [(host, len(list(same))) for host, same in groupby(hosts)]
    return ", ".join(f"{host} ({count})" for host, count in runs)
