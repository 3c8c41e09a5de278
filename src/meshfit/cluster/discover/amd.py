"""What rocm-smi and amd-smi have in common: paths from link types, weights and hops."""

from collections.abc import Sequence

from meshfit.cluster.discover.facts import Path, pair
from meshfit.cluster.discover.text import SourceText

Table = Sequence[Sequence[str]]

_WEIGHT_OF_ONE_LINK = 15
"""Of one xGMI link; a segment of PCIe is 20 (ROCm/rocm-systems PR 7372)."""
_HOPS_ACROSS_NUMA = 3
"""1: xGMI fabric; 2: PCIe inside a NUMA node; 3: across NUMA nodes (same source)."""


def gpu_paths(
    source: SourceText,
    labels: Sequence[str],
    weights: Table | None,
    hops: Table | None,
    kinds: Table | None,
) -> dict[tuple[str, str], Path]:
    """Paths of all pairs; none without the kinds of links. Fails when a table is not symmetric."""
    if kinds is None:
        return {}
    for title, table in (("weight", weights), ("hops", hops), ("link type", kinds)):
        _check_symmetric(source, title, labels, table)
    paths: dict[tuple[str, str], Path] = {}
    for i, a in enumerate(labels):
        for j in range(i + 1, len(labels)):
            path = _path(kinds[i][j], _number(weights, i, j), _number(hops, i, j))
            if path is None:
                source.fail(None, f"link {kinds[i][j]!r} of {a} to {labels[j]}; known: XGMI, PCIE")
            paths[pair(a, labels[j])] = path
    return paths


def _path(kind: str, weight: int | None, hops: int | None) -> Path | None:
    """None for a kind of link that is not known here."""
    if kind.upper() == "XGMI":
        is_direct = weight is None or weight <= _WEIGHT_OF_ONE_LINK
        return Path(kind="XGMI", links=int(is_direct))
    if kind.upper() == "PCIE":
        return Path(kind="SYS" if hops is None or hops >= _HOPS_ACROSS_NUMA else "NODE")
    return None


def _number(table: Table | None, i: int, j: int) -> int | None:
    cell = table[i][j] if table is not None else ""
    return int(cell) if cell.isdigit() else None


def _check_symmetric(
    source: SourceText, title: str, labels: Sequence[str], table: Table | None
) -> None:
    for i, row in enumerate(table or ()):
        for j, cell in enumerate(row[:i]):
            other = table[j][i] if table else cell
            if other != cell:
                source.fail(
                    None, f"{title} of {labels[i]} to {labels[j]} is {cell}, the other way {other}"
                )
