"""Slurm's topology.yaml (25.05 and later): several topologies, of which one is the cluster's."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from meshfit.cluster.discover.facts import NetworkFacts, Reading, Tier
from meshfit.cluster.discover.slurm_conf import LOCALITY_ONLY, block_tiers, hosts_of
from meshfit.cluster.discover.text import SourceText
from meshfit.cluster.discover.tree import Fail, expand, tiers_of
from meshfit.cluster.discover.yaml_tree import load

NAME = "Slurm topology.yaml"

_KINDS = ("tree", "block", "flat", "ring", "torus3d")


def recognizes(source: SourceText) -> bool:
    return re.search(r"^\s*-\s*topology\s*:", source.text, re.M) is not None


def read(source: SourceText) -> Reading:
    document = load(source)
    fail = partial(source.fail, None)
    if not isinstance(document, list) or not all(isinstance(entry, Mapping) for entry in document):
        fail("must be a list of topologies, each with `topology: NAME`")
    notes: list[str] = []
    chosen = _default(document, notes)
    name = str(chosen.get("topology"))
    kinds = [kind for kind in _KINDS if kind in chosen]
    if len(kinds) != 1:
        fail(
            f"topology {name} has {' and '.join(kinds) or 'none'} of {', '.join(_KINDS)}; one is needed"
        )
    tiers = _tiers(kinds[0], chosen[kinds[0]], notes, fail)
    return Reading(
        source=source.name,
        format=NAME,
        network=NetworkFacts(hosts=hosts_of(tiers), tiers=tiers),
        notes=(*notes, LOCALITY_ONLY),
    )


def _default(document: Sequence[Mapping[str, Any]], notes: list[str]) -> Mapping[str, Any]:
    """The topology of the cluster: the one marked so, else the first (as Slurm does)."""
    chosen = next(
        (entry for entry in document if entry.get("cluster_default") is True), document[0]
    )
    others = [str(entry.get("topology")) for entry in document if entry is not chosen]
    if others:
        notes.append(
            f"topology {chosen.get('topology')} is the cluster's; left out: {', '.join(others)}"
        )
    return chosen


def _tiers(kind: str, body: Any, notes: list[str], fail: Fail) -> tuple[Tier, ...]:
    match kind:
        case "tree":
            return _tree(_list(body, "switches", fail), fail)
        case "block":
            blocks = {
                _text(entry, "block", fail): expand(_text(entry, "nodes", fail), fail)
                for entry in _list(body, "blocks", fail)
            }
            sizes = body.get("block_sizes") or []
            if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
                fail(f"block_sizes {sizes!r} is no list of numbers")
            return block_tiers(blocks, sizes, notes, fail)
        case "ring":
            rings = _list(body, "rings", fail)
            domains = {_text(r, "ring", fail): expand(_text(r, "nodes", fail), fail) for r in rings}
            return (Tier(name="ring", domains=domains),)
        case "torus3d":
            toruses = _list(body, "toruses", fail)
            domains = {
                _text(t, "name", fail): expand(_text(t, "nodes", fail), fail) for t in toruses
            }
            return (Tier(name="torus", domains=domains),)
        case _:
            return fail("a flat topology says nothing of who is near whom")


def _tree(switches: Sequence[Mapping[str, Any]], fail: Fail) -> tuple[Tier, ...]:
    children: dict[str, tuple[str, ...]] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    for entry in switches:
        name = _text(entry, "switch", fail)
        if name in hosts:
            fail(f"switch {name} is there twice")
        hosts[name] = expand(_text(entry, "nodes", fail), fail) if "nodes" in entry else ()
        if "children" in entry:
            children[name] = expand(_text(entry, "children", fail), fail)
        if not hosts[name] and name not in children:
            fail(f"switch {name} has neither nodes nor children")
    return tiers_of(children, hosts, fail)


def _list(body: Any, key: str, fail: Fail) -> list[Mapping[str, Any]]:
    entries = body.get(key) if isinstance(body, Mapping) else None
    if (
        not isinstance(entries, list)
        or not entries
        or not all(isinstance(e, Mapping) for e in entries)
    ):
        fail(f"{key}: must be a list of keys and values")
    return entries


def _text(entry: Mapping[str, Any], key: str, fail: Fail) -> str:
    value = entry.get(key)
    if not isinstance(value, str | int) or value == "":
        fail(f"{key}: is missing beside {', '.join(map(str, entry)) or 'nothing'}")
    return str(value)
