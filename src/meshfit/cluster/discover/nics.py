"""Which network cards GPUs use: the nearest ones."""

from meshfit.cluster.discover.facts import PATH_KINDS, HostFacts, NicFacts, PathKind, pair


def nearest_nics(host: HostFacts) -> dict[str, tuple[PathKind, tuple[NicFacts, ...]]]:
    """GPU label -> the nearest path and the cards at that distance; GPUs without a path left out."""
    found = {}
    for gpu in host.gpus or ():
        paths = {
            nic.label: host.paths[pair(gpu.label, nic.label)]
            for nic in host.nics or ()
            if pair(gpu.label, nic.label) in host.paths
        }
        if not paths:
            continue
        nearest = min(PATH_KINDS.index(path.kind) for path in paths.values())
        cards = tuple(
            nic
            for nic in host.nics or ()
            if nic.label in paths and PATH_KINDS.index(paths[nic.label].kind) == nearest
        )
        found[gpu.label] = (PATH_KINDS[nearest], cards)
    return found


def compute_nics(host: HostFacts) -> tuple[NicFacts, ...]:
    """Cards that are the nearest to some GPU; all where no path says."""
    used = {nic.label for _, nics in nearest_nics(host).values() for nic in nics}
    return tuple(nic for nic in host.nics or () if nic.label in used or not used)


def far_card_notes(host: HostFacts) -> list[str]:
    """GPUs without a card under their own PCIe root: what they send goes through the processor."""
    by_kind: dict[PathKind, list[str]] = {}
    for label, (kind, _) in nearest_nics(host).items():
        by_kind.setdefault(kind, []).append(label)
    ways: dict[PathKind, str] = {
        "NODE": "host bridges of its NUMA node",
        "SYS": "the link between NUMA nodes",
    }
    return [
        f"{', '.join(by_kind[kind])}: the nearest network card shares no PCIe root ({kind}, over "
        f"{way}); move the card or the GPU to one root, or check the BIOS's NUMA nodes per socket"
        for kind, way in ways.items()
        if kind in by_kind
    ]
