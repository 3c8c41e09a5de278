"""Labels of Kubernetes nodes (``kubectl get nodes -o json`` or ``-o yaml``).

Read are those of GPU feature discovery (``nvidia.com/gpu.*``), of topograph, and the network labels
that NVIDIA's and cloud plugins write, nearest tier first.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from meshfit.cluster.discover.facts import (
    FabricFacts,
    GpuFacts,
    HostFacts,
    NetworkFacts,
    Reading,
    Tier,
)
from meshfit.cluster.discover.slurm_conf import LOCALITY_ONLY
from meshfit.cluster.discover.text import SourceText
from meshfit.cluster.discover.tree import Fail
from meshfit.cluster.discover.yaml_tree import load

NAME = "Kubernetes node labels"

_DOMAINS = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
)
_TIERS = (
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/block",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/core",
    "network.topology.nvidia.com/datacenter",
    "topology.k8s.aws/network-node-layer-3",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-1",
    "cloud.google.com/gce-topology-host",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-block",
)
_TOPOGRAPH_TIER = re.compile(r"fabric\.topograph\.run/tier-(\d+)")
_RECOGNIZED = re.compile(
    r"nvidia\.com/gpu\.|topograph\.run/|network\.topology\.nvidia\.com/|topology\.k8s\.aws/|gce-topology"
)

_COUNT = "nvidia.com/gpu.count"

Labels = Mapping[str, str]


def recognizes(source: SourceText) -> bool:
    is_nodes = re.search(
        r'^\s*-?\s*"?kind"?\s*:\s*"?(Node|List|NodeList)"?,?\s*$', source.text, re.M
    )
    return is_nodes is not None or (
        _RECOGNIZED.search(source.text) is not None and "labels" in source.text
    )


def read(source: SourceText) -> Reading:
    fail = partial(source.fail, None)
    nodes = _nodes(load(source), fail)
    if not any(_RECOGNIZED.search(key) for labels in nodes.values() for key in labels):
        fail("no label of these nodes tells GPUs or places; GPU feature discovery and topograph do")
    notes: tuple[str, ...] = ()
    with_gpus = {name: labels for name, labels in nodes.items() if _COUNT in labels}
    if with_gpus and len(with_gpus) < len(nodes):
        notes = (f"{len(nodes) - len(with_gpus)} nodes without {_COUNT} are left out",)
        nodes = with_gpus
    tiers = tuple(_tiers(nodes))
    hosts = tuple(_host(name, labels, fail) for name, labels in nodes.items())
    return Reading(
        source=source.name,
        format=NAME,
        hosts=hosts,
        network=NetworkFacts(hosts=tuple(nodes), tiers=tiers),
        notes=(*notes, LOCALITY_ONLY),
    )


def _nodes(document: Any, fail: Fail) -> dict[str, Labels]:
    """Labels by node name."""
    if isinstance(document, Mapping):
        entries = document["items"] if isinstance(document.get("items"), list) else [document]
    else:
        entries = document
    if not isinstance(entries, list):
        fail("is no list of nodes")
    nodes: dict[str, Labels] = {}
    for entry in entries:
        metadata = entry.get("metadata") if isinstance(entry, Mapping) else None
        labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
        if not isinstance(metadata, Mapping) or not isinstance(labels, Mapping):
            fail("a node without metadata.labels")
        name = str(metadata.get("name") or labels.get("kubernetes.io/hostname") or "")
        if not name or name in nodes:
            fail(f"node {name!r} is there twice or has no name")
        nodes[name] = {str(key): str(value) for key, value in labels.items()}
    return nodes


def _tiers(nodes: Mapping[str, Labels]) -> Sequence[Tier]:
    found = {key for labels in nodes.values() for key in labels}
    topograph = sorted(
        (int(match[1]), key) for key in found if (match := _TOPOGRAPH_TIER.fullmatch(key))
    )
    domain = next((key for key in _DOMAINS if key in found), None)
    keys = [(domain, "nvlink", True)] if domain else []
    keys += [(key, f"tier{number}", False) for number, key in topograph]
    if not topograph:
        keys += [(key, key.rpartition("/")[2], False) for key in _TIERS if key in found]
    return [
        Tier(name=name, domains=_divided(nodes, key), is_link=is_link)
        for key, name, is_link in keys
    ]


def _divided(nodes: Mapping[str, Labels], key: str) -> dict[str, tuple[str, ...]]:
    domains: dict[str, tuple[str, ...]] = {}
    for name, labels in nodes.items():
        if labels.get(key):
            domains[labels[key]] = (*domains.get(labels[key], ()), name)
    return domains


def _host(name: str, labels: Labels, fail: Fail) -> HostFacts:
    count = labels.get(_COUNT)
    if count is None:
        return HostFacts(host=name)
    if not re.fullmatch(r"\d{1,4}", count):
        fail(f"node {name}: {_COUNT} {count!r} is no number")
    memory = labels.get("nvidia.com/gpu.memory", "")
    uuid, _, clique = labels.get("nvidia.com/gpu.clique", "").rpartition(".")
    fabric = FabricFacts(cluster_uuid=uuid, clique_id=clique) if uuid else None
    return HostFacts(
        host=name,
        gpus=tuple(
            GpuFacts(
                label=f"GPU{index}",
                name=labels.get("nvidia.com/gpu.product"),
                memory_bytes=int(memory) * 2**20 if memory.isdigit() else None,
                fabric=fabric,
            )
            for index in range(int(count))
        ),
    )
