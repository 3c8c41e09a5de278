"""Switches that name what is below them, as tiers of hosts."""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from meshfit.cluster.discover.facts import Tier
from meshfit.cluster.hostlist import expand_hosts
from meshfit.errors import InputError

Fail = Callable[[str], NoReturn]


def tiers_of(
    children: Mapping[str, Sequence[str]], hosts: Mapping[str, Sequence[str]], fail: Fail
) -> tuple[Tier, ...]:
    """Tiers from the innermost: switches with hosts, then those above them.

    ``children``: switch -> switches below; ``hosts``: switch -> hosts at it. Fails on a switch that
    is named but not described, has two parents or is above itself, and on a host at two switches.
    """
    _check_parents(children, hosts, fail)
    check_hosts(hosts, fail)
    heights: dict[str, int] = {}
    for switch in (*hosts, *children):
        _height(switch, (children, hosts), heights, fail, ())
    if not any(height >= 0 for height in heights.values()):
        fail("no switch has hosts below it")
    tiers = []
    for height in range(max(heights.values(), default=0) + 1):
        domains = {
            switch: tuple(_hosts_below(switch, children, hosts))
            for switch, own in heights.items()
            if own == height
        }
        tiers.append(Tier(name=_tier_name(height), domains=domains))
    return tuple(tiers)


def expand(text: str, fail: Fail) -> tuple[str, ...]:
    """Names of a host list; ``fail`` says where it stands."""
    try:
        return expand_hosts(text)
    except InputError as error:
        fail(str(error))


def _tier_name(height: int) -> str:
    return ("leaf", "spine", "core")[height] if height < 3 else f"tier{height}"


def _check_parents(
    children: Mapping[str, Sequence[str]], hosts: Mapping[str, Sequence[str]], fail: Fail
) -> None:
    parents: dict[str, str] = {}
    for switch, below in children.items():
        for child in below:
            if child not in children and child not in hosts:
                fail(f"switch {switch} names {child} below it, which is not described")
            if child in parents:
                fail(f"switch {child} is below {parents[child]} and below {switch}")
            parents[child] = switch


def check_hosts(hosts: Mapping[str, Sequence[str]], fail: Fail) -> None:
    """Fails on a host at two switches or in two blocks."""
    at: dict[str, str] = {}
    for switch, names in hosts.items():
        for name in names:
            if name in at:
                fail(f"host {name} is at {at[name]} and at {switch}")
            at[name] = switch


def _height(
    switch: str,
    tree: tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]],
    heights: dict[str, int],
    fail: Fail,
    above: tuple[str, ...],
) -> int:
    """Switches between this one and the hosts; -1 where no host is below it."""
    if switch in above:
        fail(f"switch {switch} is above itself")
    if len(above) > 64:
        fail(f"more than 64 tiers above {switch}")
    if switch not in heights:
        children, hosts = tree
        below = [
            _height(child, tree, heights, fail, (*above, switch))
            for child in children.get(switch, ())
        ]
        highest = max(below, default=-1)
        own = 0 if hosts.get(switch) else -1
        heights[switch] = highest + 1 if highest >= 0 else own
    return heights[switch]


def _hosts_below(
    switch: str, children: Mapping[str, Sequence[str]], hosts: Mapping[str, Sequence[str]]
) -> list[str]:
    own = list(hosts.get(switch, ()))
    return own + [h for c in children.get(switch, ()) for h in _hosts_below(c, children, hosts)]
