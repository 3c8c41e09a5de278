"""topograph's model file: switches, and blocks of nodes with the accelerator domain they share."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from meshfit.cluster.discover.facts import NetworkFacts, Reading, Tier
from meshfit.cluster.discover.slurm_conf import LOCALITY_ONLY, hosts_of
from meshfit.cluster.discover.text import SourceText
from meshfit.cluster.discover.tree import Fail, expand, tiers_of
from meshfit.cluster.discover.yaml_tree import load

NAME = "topograph model"

_DOMAIN = re.compile(r"accelerator\.[\w.-]+/domain|network\.topology\.nvidia\.com/accelerator")
_OLD_DOMAIN = "network.topology.nvidia.com/accelerator"
_REQUEST = {"provider", "engine"}


def recognizes(source: SourceText) -> bool:
    return _is_model(source.text) or _is_request(source.text)


def _is_model(text: str) -> bool:
    return all(re.search(rf"^{key}:", text, re.M) for key in ("switches", "(capacity_)?blocks"))


def _is_request(text: str) -> bool:
    return all(re.search(rf'^\s*"?{key}"?\s*:', text, re.M) for key in _REQUEST)


def read(source: SourceText) -> Reading:
    fail = partial(source.fail, None)
    if not _is_model(source.text):
        fail(
            "a request to topograph (provider and engine), no topology; give what topograph answers: "
            "Slurm's topology.conf or the labels of Kubernetes nodes"
        )
    document = load(source)
    if not isinstance(document, Mapping):
        fail("needs `switches:` and `blocks:`")
    model = _older(document, fail) if "capacity_blocks" in document else document
    switches, blocks = model.get("switches"), model.get("blocks")
    if not isinstance(switches, Mapping) or not isinstance(blocks, list) or not blocks:
        fail("needs `switches:` (keys and values) and `blocks:` (a list)")
    children = {str(name): _below(name, body, fail) for name, body in switches.items()}
    hosts: dict[str, tuple[str, ...]] = {}
    domains: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        _add_block(block, hosts, domains, fail)
    named = [child for below in children.values() for child in below]
    empty = [name for name in named if name not in children and name not in hosts]
    hosts |= dict.fromkeys(empty, ())
    tiers = tiers_of({k: v for k, v in children.items() if v}, hosts, fail)
    if domains:
        tiers = (Tier(name="nvlink", domains=domains, is_link=True), *tiers)
    notes = (f"switches without nodes: {', '.join(empty)}",) if empty else ()
    return Reading(
        source=source.name,
        format=NAME,
        network=NetworkFacts(hosts=hosts_of(tiers), tiers=tiers),
        notes=(*notes, LOCALITY_ONLY),
    )


def _older(document: Mapping[str, Any], fail: Fail) -> dict[str, Any]:
    """Models before 2026, which list switches and name the blocks at each, in today's form."""
    switches, blocks = (_named(document.get(key), fail) for key in ("switches", "capacity_blocks"))
    at = {
        str(block): entry["name"]
        for entry in switches
        for block in entry.get("capacity_blocks") or ()
    }
    return {
        "switches": {
            entry["name"]: {"switches": entry.get("switches") or []} for entry in switches
        },
        "blocks": [
            {
                "switch": at.get(str(block["name"]), block["name"]),
                "nodes": block.get("nodes"),
                "labels": {_OLD_DOMAIN: block["nvlink"]} if block.get("nvlink") else {},
            }
            for block in blocks
        ],
    }


def _named(entries: Any, fail: Fail) -> list[Mapping[str, Any]]:
    is_list = isinstance(entries, list) and all(isinstance(entry, Mapping) for entry in entries)
    if not is_list or not all(isinstance(entry.get("name"), str) for entry in entries):
        fail("needs `switches:` and `capacity_blocks:`, lists whose entries have a `name:`")
    return list(entries)


def _below(name: Any, body: Any, fail: Fail) -> tuple[str, ...]:
    below = (body or {}).get("switches", []) if isinstance(body, Mapping | None) else None
    if not isinstance(below, list):
        fail(f"switch {name}: switches must be a list")
    return tuple(map(str, below))


def _add_block(
    block: Any, hosts: dict[str, tuple[str, ...]], domains: dict[str, tuple[str, ...]], fail: Fail
) -> None:
    if not isinstance(block, Mapping) or not isinstance(block.get("nodes"), list):
        fail(f"block {block!r:.60}: needs `nodes:` (a list)")
    nodes = tuple(host for part in block["nodes"] for host in expand(str(part), fail))
    switch = str(block.get("switch") or f"block{len(hosts)}")
    hosts[switch] = hosts.get(switch, ()) + nodes
    annotations = {**_mapping(block, "labels"), **_mapping(block, "annotations")}
    for key, value in annotations.items():
        if _DOMAIN.fullmatch(str(key)):
            domains[str(value)] = domains.get(str(value), ()) + nodes


def _mapping(block: Mapping[str, Any], key: str) -> Mapping[Any, Any]:
    value = block.get(key)
    return value if isinstance(value, Mapping) else {}
