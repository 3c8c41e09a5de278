"""A lab: what a person asks of it, and what it is as a topology.

Its hosts are network namespaces of this machine (``meshfit.lab`` makes them), joined by a link of
limited rate each; its ranks are CPU ranks that share this machine's cores.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshfit.cluster.here import this_machine
from meshfit.cluster.hostlist import expand_hosts
from meshfit.cluster.schema import LabBlock, LabFile
from meshfit.cluster.topology import LabSpec, Level, Topology
from meshfit.errors import InputError, shown
from meshfit.files import read_yaml_mapping, validate
from meshfit.units import parse_bandwidth, parse_duration

UP_FILE = Path("/run/meshfit/lab.yaml")
"""Describes the lab that is up; there only while one is."""

EXAMPLE = "meshfit lab up --hosts 2 --ranks-per-host 2 --between 200Mbit"

MOST_HOSTS = 64
LATENCY_S = 100e-6
"""One way through two network stacks and a bridge of one machine: a guess, as for the loopback."""

PAYLOAD_FRACTION = 1448 / 1514
"""Payload of a full Ethernet frame that carries TCP over IPv4 with time stamps. The limit (``tc
tbf``) counts whole frames."""

_HOST = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def read_lab(file: LabFile, source: str) -> LabSpec:
    """The lab that a file asks for.

    Raises:
        InputError: fewer than two hosts or more than ``MOST_HOSTS``, a name that no host can have,
            a rate or a latency that is none.
    """
    hosts = _hosts(file.hosts)
    if not 2 <= len(hosts) <= MOST_HOSTS:
        raise InputError(
            f"{source}: a lab of {len(hosts)} hosts; write 2 to {MOST_HOSTS} (one host is "
            f"`cluster: here`)"
        )
    for host in hosts:
        if not _HOST.fullmatch(host) or host == "localhost":
            raise InputError(
                f"{source}: {shown(host)} is no host name: up to 40 of a-z, 0-9 and -, as in node1"
            )
    rate = _rate(file.between)
    if not rate > 0:
        raise InputError(f"{source}: between {file.between!r} must be greater than 0")
    return LabSpec(
        hosts=hosts,
        ranks_per_host=file.ranks_per_host,
        between_bytes_per_s=rate,
        latency_s=parse_duration(file.latency or 0.0),
    )


def read_lab_block(block: Any, source: str) -> LabSpec:
    """The lab of a mapping with the key ``lab``, as under ``cluster:`` or in ``UP_FILE``."""
    return read_lab(validate(LabBlock, block, source).lab, source)


def lab_that_is_up() -> LabSpec | None:
    """The lab that is up on this machine; None when there is none."""
    if not UP_FILE.exists():
        return None
    return read_lab_block(read_yaml_mapping(UP_FILE), str(UP_FILE))


def require_lab_up() -> LabSpec:
    """The lab that is up.

    Raises:
        InputError: none is, with how to make one.
    """
    lab = lab_that_is_up()
    if lab is None:
        raise InputError(
            f"cluster lab: no lab is up on this machine; `{EXAMPLE}` makes one, and `cluster: "
            f"{{lab: {{hosts: 2, ranks_per_host: 2, between: 200Mbit}}}}` describes one"
        )
    return lab


def lab_topology(lab: LabSpec) -> Topology:
    """A lab as two levels, ``host`` and ``between``; the ranks of a host share its link.

    Raises:
        InputError: too little memory here for so many ranks.
    """
    ranks = len(lab.hosts) * lab.ranks_per_host
    here = this_machine(ranks=ranks, oversubscribe=True, device="cpu")
    inside = replace(here.levels[0], name="host", size=lab.ranks_per_host)
    between = Level(
        name="between",
        size=len(lab.hosts),
        kind="switch",
        bandwidth_bytes_per_s=lab.between_bytes_per_s * PAYLOAD_FRACTION / lab.ranks_per_host,
        latency_s=LATENCY_S + lab.latency_s,
    )
    return replace(
        here,
        levels=(inside, between),
        gpus_per_host=lab.ranks_per_host,
        hosts=lab.hosts,
        lab=lab,
    )


def _hosts(value: int | str | list[str]) -> tuple[str, ...]:
    if isinstance(value, int):
        digits = len(str(value - 1))
        return tuple(f"host{index:0{digits}}" for index in range(min(value, MOST_HOSTS + 1)))
    return expand_hosts(value if isinstance(value, str) else ",".join(value))


def _rate(text: str) -> float:
    """Bytes per second; ``tc`` leaves out the second, as in ``200Mbit``."""
    is_rate_of_tc = re.fullmatch(r"\s*[\d.]+\s*[A-Za-z]*bit\s*", text)
    return parse_bandwidth(f"{text.strip()}/s" if is_rate_of_tc else text)
