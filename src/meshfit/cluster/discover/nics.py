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


def has_card_each(host: HostFacts) -> bool:
    """Whether every GPU has cards of its own behind a PCIe switch, as rails need."""
    nearest = nearest_nics(host)
    if not host.gpus or len(nearest) < len(host.gpus):
        return False
    owned = [nic.label for _, nics in nearest.values() for nic in nics]
    is_near = all(kind in ("PIX", "PXB") for kind, _ in nearest.values())
    return is_near and len(owned) == len(set(owned))
