"""Slurm's topology.conf: a tree of switches, or blocks."""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from meshfit.cluster.discover.facts import NetworkFacts, Reading, Tier
from meshfit.cluster.discover.text import Line, SourceText
from meshfit.cluster.discover.tree import Fail, check_hosts, expand, tiers_of

NAME = "Slurm topology.conf"

_ENTRY = re.compile(r"([A-Za-z]+)=(\S+)")
_KEYS = {
    "switchname": ("nodes", "switches", "linkspeed"),
    "blockname": ("nodes",),
    "blocksizes": (),
}


def recognizes(source: SourceText) -> bool:
    return re.search(r"^\s*(SwitchName|BlockName)\s*=", source.text, re.I | re.M) is not None


def read(source: SourceText) -> Reading:
    notes: list[str] = []
    children: dict[str, tuple[str, ...]] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    blocks: dict[str, tuple[str, ...]] = {}
    sizes: tuple[int, ...] = ()
    for line, entries in _entries(source):
        if "blocksizes" in entries:
            sizes = _sizes(source, line, entries["blocksizes"])
            continue
        fail = partial(source.fail, line)
        nodes = expand(entries["nodes"], fail) if "nodes" in entries else ()
        switches = expand(entries["switches"], fail) if "switches" in entries else ()
        kind = next(iter(entries))
        for name in expand(entries[kind], fail):
            if name in blocks or name in hosts:
                fail(f"{name} is there twice")
            if not nodes and not switches:
                fail(f"{name} has neither Nodes nor Switches")
            (blocks if kind == "blockname" else hosts)[name] = nodes
            if switches:
                children[name] = switches
    fail = partial(source.fail, None)
    if blocks and hosts:
        fail("both SwitchName and BlockName; one topology has one of them")
    tiers = block_tiers(blocks, sizes, notes, fail) if blocks else tiers_of(children, hosts, fail)
    return Reading(
        source=source.name,
        format=NAME,
        network=NetworkFacts(hosts=hosts_of(tiers), tiers=tiers),
        notes=(*notes, LOCALITY_ONLY),
    )


LOCALITY_ONLY = "who is near whom only: no bandwidth and no oversubscription; type or measure them"


def hosts_of(tiers: Sequence[Tier]) -> tuple[str, ...]:
    """Hosts of the innermost tier in their order; those that only an outer one has after them."""
    return tuple(
        dict.fromkeys(h for tier in tiers for names in tier.domains.values() for h in names)
    )


def block_tiers(
    blocks: Mapping[str, tuple[str, ...]], sizes: Sequence[int], notes: list[str], fail: Fail
) -> tuple[Tier, ...]:
    """Blocks, then each larger block size as blocks put together in their order (topology/block)."""
    check_hosts(blocks, fail)
    tiers = [Tier(name="block", domains=blocks)]
    base = len(next(iter(blocks.values())))
    for size in sorted(sizes):
        if size <= base:
            continue
        if size % base or any(len(hosts) != base for hosts in blocks.values()):
            notes.append(
                f"block size {size} is no multiple of the {base} hosts of a block; left out"
            )
            continue
        names, step = list(blocks), size // base
        groups = [names[i : i + step] for i in range(0, len(names), step)]
        tiers.append(
            Tier(
                name=f"block{size}",
                domains={g[0]: tuple(h for n in g for h in blocks[n]) for g in groups},
            )
        )
    return tuple(tiers)


def _entries(source: SourceText) -> list[tuple[Line, dict[str, str]]]:
    """Keys (lower case) and values of every line; a backslash carries it on to the next."""
    found = []
    carried = ""
    for line in source.lines:
        text = carried + line.text.partition("#")[0].strip()
        if text.endswith("\\"):
            carried = text[:-1].rstrip() + " "
            continue
        carried = ""
        if not text:
            continue
        words = text.split()
        entries = {}
        for word in words:
            match = _ENTRY.fullmatch(word)
            if match is None:
                source.fail(line, f"{word!r} is no KEY=VALUE")
            entries[match[1].lower()] = match[2]
        kind = next(iter(entries))
        if kind not in _KEYS:
            source.fail(
                line, f"{words[0]!r}: a line starts with SwitchName, BlockName or BlockSizes"
            )
        unknown = [key for key in entries if key != kind and key not in _KEYS[kind]]
        if unknown:
            source.fail(
                line, f"unknown key {unknown[0]}; known beside {kind}: {', '.join(_KEYS[kind])}"
            )
        found.append((line, entries))
    if carried:
        source.fail(source.lines[-1], "ends inside a line that goes on")
    return found


def _sizes(source: SourceText, line: Line, text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,7}(,\d{1,7})*", text):
        source.fail(line, f"BlockSizes {text!r} is no list of numbers like 8,16")
    return tuple(int(size) for size in text.split(","))
