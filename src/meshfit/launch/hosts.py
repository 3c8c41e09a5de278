"""The hosts of one launch, and how many of its ranks each takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, kw_only=True)
class LaunchHost:
    """A host that ranks are started on.

    Attributes:
        name: by which the other hosts find it.
        prefix: put before a command to run it there; the command must keep pid and parent (each
            part of the prefix replaces itself by the next).
        environment: variables that ranks need there.
        ranks: most that it takes.
    """

    name: str
    ranks: int
    prefix: tuple[str, ...] = ()
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
