"""Which devices are near each other: the groups that paths of some kind join."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from meshfit.cluster.discover.facts import PATH_KINDS, GpuFacts, Path, PathKind, pair

Groups = tuple[tuple[str, ...], ...]


def joined(labels: Sequence[str], are_joined: Callable[[str, str], bool]) -> Groups:
    """The groups that pairs join, directly or over others; in the order of ``labels``."""
    group_of = {label: label for label in labels}
    for index, a in enumerate(labels):
        for b in labels[index + 1 :]:
            if group_of[a] != group_of[b] and are_joined(a, b):
                old, new = group_of[b], group_of[a]
                group_of = {label: new if g == old else g for label, g in group_of.items()}
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(group_of[label], []).append(label)
    return tuple(map(tuple, groups.values()))


def linked(labels: Sequence[str], paths: Mapping[tuple[str, str], Path]) -> Groups:
    """Groups over links of their own (NVLink, xGMI)."""
    return joined(labels, lambda a, b: (path := paths.get(pair(a, b))) is not None and path.is_link)


def within(
    gpus: Sequence[GpuFacts], paths: Mapping[tuple[str, str], Path], kind: PathKind
) -> Groups:
    """Groups over paths up to ``kind``, links included. Up to NODE, the same NUMA affinity joins too:
    nvidia-smi says SYS between host bridges of one NUMA node on many boards."""
    furthest = PATH_KINDS.index(kind)
    numa = {gpu.label: gpu.numa for gpu in gpus}

    def are_joined(a: str, b: str) -> bool:
        path = paths.get(pair(a, b))
        if path is not None and PATH_KINDS.index(path.kind) <= furthest:
            return True
        return kind == "NODE" and numa[a] is not None and numa[a] == numa[b]

    return joined([gpu.label for gpu in gpus], are_joined)


def numa_groups(gpus: Sequence[GpuFacts], paths: Mapping[tuple[str, str], Path]) -> Groups:
    """GPUs of one NUMA node, by their affinity; where a source says none, by the way over PCIe.

    A link says nothing of where a GPU sits, so GPUs with links only are one group.
    """
    if all(gpu.numa is not None for gpu in gpus):
        numa = {gpu.label: gpu.numa for gpu in gpus}
        return joined(list(numa), lambda a, b: numa[a] == numa[b])
    labels = [gpu.label for gpu in gpus]
    return joined(labels, lambda a, b: _kind(paths, a, b) not in ("SYS", None))


def switch_groups(
    labels: Sequence[str], nics: Sequence[str], paths: Mapping[tuple[str, str], Path]
) -> Groups:
    """GPUs behind the same PCIe switches: by their own path, or as both are near one card."""
    near = ("PIX", "PXB")
    cards = {a: {nic for nic in nics if _kind(paths, a, nic) in near} for a in labels}
    return joined(labels, lambda a, b: _kind(paths, a, b) in near or bool(cards[a] & cards[b]))


def _kind(paths: Mapping[tuple[str, str], Path], a: str, b: str) -> PathKind | None:
    path = paths.get(pair(a, b))
    return None if path is None else path.kind


def equal_size(groups: Iterable[Sequence[str]]) -> int | None:
    """The size of all groups; None where they differ."""
    sizes = {len(group) for group in groups}
    return sizes.pop() if len(sizes) == 1 else None
