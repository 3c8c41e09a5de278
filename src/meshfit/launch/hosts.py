"""The hosts of one launch, and how many of its ranks each takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, kw_only=True)
class LaunchHost:
    """A host that ranks are started on.

    Attributes:
        name: by which the other hosts find it.
        prefix: put before a command to run it there.
        keeps_parent: the command runs as a child of who starts it (each part of the prefix replaces
            itself by the next), and ends with it; False where a scheduler starts and ends it.
        place: its number among the hosts of a launch, where ranks must lie in the order of hosts;
            None: torchrun orders hosts by name.
        environment: variables that ranks need there.
        ranks: most that it takes.
    """

    name: str
    ranks: int
    prefix: tuple[str, ...] = ()
    keeps_parent: bool = True
    place: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Ranks ``first_rank`` and on of a launch, all on one host."""

    host: LaunchHost
    num_ranks: int
    first_rank: int = 0


def seats(hosts: Sequence[LaunchHost], world_size: int) -> list[Seat]:
    """Ranks fill hosts in order; hosts that get none have no seat.

    No hosts: all ranks on this machine.
    """
    hosts = hosts or [LaunchHost(name="localhost", ranks=world_size)]
    firsts = accumulate((host.ranks for host in hosts), initial=0)
    taken = [
        Seat(host=host, num_ranks=min(host.ranks, world_size - first), first_rank=first)
        for host, first in zip(hosts, firsts, strict=False)
        if first < world_size
    ]
    assert sum(seat.num_ranks for seat in taken) == world_size, "more ranks than the hosts take"
    return taken
