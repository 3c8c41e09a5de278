"""``ibnetdiscover``: leaf switches, the hosts and cards at them, and the links that go up."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshfit.cluster.discover.facts import NetworkFacts, Reading, Tier
from meshfit.cluster.discover.text import Line, SourceText

NAME = "ibnetdiscover"

_NODE = re.compile(r'(Switch|Ca|Rt)\s+(\d+)\s+"([SHR]-[0-9a-fA-F]+)"\s*#\s*"(.*?)"')
_PORT = re.compile(
    r'\[(\d+)\](?:\([0-9a-fA-F]+\))?\s+"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\([0-9a-fA-F]+\))?\s*'
    r'(?:\[ext \d+\])?\s*#\s*(?:lid \d+ lmc \d+ )?"(.*?)"\s*(?:lid \d+)?\s*(\S+)?\s*$'
)
_OTHER = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid|port)=?|#|DDR|DISTANCE")
_HOST = re.compile(r"(\S+)\s+((?:mlx|hfi|qib|ib|bnxt|irdma|rocep?|hca|HCA)[\w-]*)\s*$")
_PER_LANE = {
    "SDR": 2e9, "DDR": 4e9, "QDR": 8e9, "FDR10": 10e9, "FDR": 13.64e9, "EDR": 25e9,
    "HDR": 50e9, "NDR": 100e9, "XDR": 200e9,
}  # fmt: skip
"""Data rate of a lane in bit/s, one direction (InfiniBand Trade Association's roadmap)."""


@dataclass
class _Switch:
    name: str
    line: Line
    hosts: list[tuple[str, str, str]] = field(default_factory=list)
    """host, card, speed"""
    up: list[tuple[str, str]] = field(default_factory=list)
    """peer switch, speed"""
    unnamed: int = 0


def recognizes(source: SourceText) -> bool:
    return re.search(r'^(Switch|Ca)\s+\d+\s+"[SH]-[0-9a-fA-F]+"', source.text, re.M) is not None


def read(source: SourceText) -> Reading:
    notes: list[str] = []
    switches = _switches(source)
    leaves = {key: switch for key, switch in switches.items() if switch.hosts}
    if not leaves:
        source.fail(source.lines[-1], "no switch has a host at one of its ports")
    missing = {peer for s in switches.values() for peer, _ in s.up if peer not in switches}
    if missing:
        notes.append(
            f"{len(missing)} switches are named but not described, so the file is not all of the "
            f"fabric; the last switch may be cut short and counts for no ratio"
        )
    unnamed = sum(switch.unnamed for switch in switches.values())
    if unnamed:
        notes.append(f"{unnamed} ports lead to cards whose host is not named; left out")
    whole = list(leaves.values())[: -1 if missing else None]
    tiers = _tiers(leaves, whole, notes)
    hosts = tuple(dict.fromkeys(host for s in leaves.values() for host, _, _ in s.hosts))
    return Reading(
        source=source.name,
        format=NAME,
        network=NetworkFacts(hosts=hosts, tiers=tiers),
        notes=tuple(notes),
    )


def _switches(source: SourceText) -> dict[str, _Switch]:
    switches: dict[str, _Switch] = {}
    current: _Switch | None = None
    for line in source.lines:
        text = line.text.strip()
        if not text:
            current = None
        elif node := _NODE.match(text):
            current = None
            if node[1] == "Switch":
                if node[3] in switches:
                    source.fail(line, f"switch {node[3]} is there twice")
                current = switches[node[3]] = _Switch(name=_switch_name(node[4]), line=line)
        elif port := _PORT.match(text):
            if current is not None:
                _add_port(current, port)
        elif not _OTHER.match(text):
            source.fail(line, f"{text[:60]!r} is no whole line of a node or a port")
    return switches


def _switch_name(description: str) -> str:
    """``IBLEAF-001`` of ``MF0;IBLEAF-001:MQM9701/U1``."""
    return description.partition(";")[2].partition(":")[0] or description


def _add_port(switch: _Switch, port: re.Match[str]) -> None:
    peer, description, speed = port[2], port[4], port[5] or ""
    if peer.startswith("S"):
        switch.up.append((peer, speed))
    elif host := _HOST.match(description):
        switch.hosts.append((host[1], host[2], speed))
    elif not description.startswith("Mellanox Technologies Aggregation"):
        switch.unnamed += 1


def _tiers(
    leaves: Mapping[str, _Switch], whole: Sequence[_Switch], notes: list[str]
) -> tuple[Tier, ...]:
    """One tier: hosts that share their leaf switches. It has rails where they have several and none
    takes two cards of one host. Oversubscribed as the worst of the leaves that are ``whole``."""
    units: dict[str, dict[str, None]] = {}
    unit_of: dict[str, str] = {}
    for key, leaf in leaves.items():
        names = list(dict.fromkeys(host for host, _, _ in leaf.hosts))
        joined = {unit_of[name] for name in names if name in unit_of}
        unit = min(joined) if joined else key
        merged: dict[str, None] = units.setdefault(unit, {})
        for other in joined - {unit}:
            merged.update(units.pop(other))
        merged.update(dict.fromkeys(names))
        unit_of.update(dict.fromkeys(merged, unit))
    domains = {leaves[unit].name: tuple(hosts) for unit, hosts in units.items()}
    notes.extend(map(_described, leaves.values()))
    rates = {_rate(speed) for leaf in leaves.values() for _, _, speed in leaf.hosts}
    return (
        Tier(
            name="leaf",
            domains=domains,
            rails=len(leaves) > len(units) and all(_is_spread(leaf) for leaf in leaves.values()),
            oversubscription=max((_ratio(leaf) for leaf in whole), default=None),
            bytes_per_s=rates.pop() / 8 if len(rates) == 1 and 0.0 not in rates else None,
        ),
    )


def _ratio(leaf: _Switch) -> float:
    """Rate of the hosts' ports over that of the uplinks, at least 1; 1 without uplinks."""
    down = sum(_rate(speed) for _, _, speed in leaf.hosts)
    up = sum(_rate(speed) for _, speed in leaf.up)
    return max(1.0, down / up) if up else 1.0


def _is_spread(leaf: _Switch) -> bool:
    return len({host for host, _, _ in leaf.hosts}) == len(leaf.hosts)


def _is_rail(leaf: _Switch) -> bool:
    """One card of each host, the same one of all."""
    hosts = [host for host, _, _ in leaf.hosts]
    return len(set(hosts)) == len(hosts) and len({card for _, card, _ in leaf.hosts}) == 1


def _described(leaf: _Switch) -> str:
    hosts = {host for host, _, _ in leaf.hosts}
    cards = sorted({card for _, card, _ in leaf.hosts})
    of = f"{cards[0]} of each" if _is_rail(leaf) else f"{len(leaf.hosts)} cards"
    return f"leaf {leaf.name}: {len(hosts)} hosts ({of}), {len(leaf.up)} uplinks"


def _rate(speed: str) -> float:
    """bit/s of ``4xNDR``; 0 where it does not say."""
    match = re.fullmatch(r"(\d+)x([A-Z0-9]+)", speed)
    return int(match[1]) * _PER_LANE.get(match[2], 0.0) if match else 0.0
