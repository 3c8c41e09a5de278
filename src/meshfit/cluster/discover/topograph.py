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

_DOMAIN = re.compile(r"accelerator\.[\w.-]+/domain")
_REQUEST = {"provider", "engine"}


def recognizes(source: SourceText) -> bool:
    return _is_model(source.text) or _is_request(source.text)


def _is_model(text: str) -> bool:
    return all(re.search(rf"^{key}:", text, re.M) for key in ("switches", "blocks"))


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
    switches = document.get("switches") if isinstance(document, Mapping) else None
    blocks = document.get("blocks") if isinstance(document, Mapping) else None
    if not isinstance(switches, Mapping) or not isinstance(blocks, list) or not blocks:
        fail("needs `switches:` (keys and values) and `blocks:` (a list)")
    children = {str(name): _below(name, body, fail) for name, body in switches.items()}
    hosts: dict[str, tuple[str, ...]] = {}
    domains: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        _add_block(block, hosts, domains, fail)
    tiers = tiers_of({k: v for k, v in children.items() if v}, hosts, fail)
    if domains:
        tiers = (Tier(name="nvlink", domains=domains, is_link=True), *tiers)
    return Reading(
        source=source.name,
        format=NAME,
        network=NetworkFacts(hosts=hosts_of(tiers), tiers=tiers),
        notes=(LOCALITY_ONLY,),
    )


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
    annotations = {**(block.get("labels") or {}), **(block.get("annotations") or {})}
    for key, value in annotations.items():
        if _DOMAIN.fullmatch(str(key)):
            domains[str(value)] = domains.get(str(value), ()) + nodes
