"""Logs of nccl-tests and rccl-tests as curves.

::

    # nThread 1 nGpus 8 minBytes 8 ...
    #  Rank  0 Group  0 Pid 41209 on   node1 device  0 [0x53] NVIDIA H100 80GB HBM3
    #       size         count      type   redop    root     time   algbw   busbw #wrong  ...
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)
            1024           256     float     sum      -1    25.15    0.04    0.07      0 ...

Columns are found by their heads; of the two sets (out-of-place, in-place) the first is read. Which
collective it was is said by ``# Collective test starting: NAME_perf``, else by the file's name.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshfit.errors import InputError
from meshfit.record.probe import CollectiveCurve, curve_point

_NAMES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "broadcast": "broadcast",
}
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
_VERSION = re.compile(r"(?:NCCL|RCCL) version\s*:?\s*(\S+)|nccl-(?:library|headers)=(\d+)")


@dataclass(frozen=True, kw_only=True)
class NcclLog:
    """One log: its curve, host of every rank, and what it says of device and library."""

    curve: CollectiveCurve
    hosts: tuple[str, ...]
    device: str
    library: str

    @property
    def ranks_per_host(self) -> int:
        return len(self.hosts) // len(set(self.hosts))


def read_nccl_log(path: Path) -> NcclLog:
    """The curve of one log.

    Raises:
        InputError: the file cannot be read, or is no such log; a line that was cut off is named.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    ranks = [match.groups() for line in lines if (match := _RANK.search(line))]
    if not ranks:
        raise InputError(
            f"{path} is no log of nccl-tests: no line names a rank and its device (# Rank 0 ... on "
            f"HOST device 0)"
        )
    hosts = tuple(host for _, host, _ in ranks)
    counts = {hosts.count(host) for host in hosts}
    if len(counts) > 1:
        raise InputError(f"{path}: hosts hold different numbers of ranks: {', '.join(hosts)}")
    collective = _collective(lines, path)
    per_host = counts.pop()
    num_hosts = len(hosts) // per_host
    members = (per_host, num_hosts) if num_hosts > 1 else (per_host,)
    points = tuple(
        curve_point(collective, len(hosts), size, seconds) for size, seconds in _rows(lines, path)
    )
    version = next((match for line in lines if (match := _VERSION.search(line))), None)
    return NcclLog(
        curve=CollectiveCurve(collective=collective, members=members, groups=1, points=points),
        hosts=hosts,
        device=ranks[0][2].strip(),
        library=f"nccl {version.group(1) or version.group(2)}" if version else "nccl",
    )


def _collective(lines: Sequence[str], path: Path) -> str:
    said = [line for line in lines if "Collective test starting" in line]
    text = said[0] if said else path.name
    for name, collective in _NAMES.items():
        if name in text.replace("all_to_all", "alltoall"):
            return collective
    raise InputError(
        f"{path}: the log does not say which collective it measured; name the file after it, as in "
        f"all_reduce_perf.log"
    )


def _rows(lines: Sequence[str], path: Path) -> list[tuple[int, float]]:
    """Bytes and seconds of every row of figures."""
    head = next((line for line in lines if re.match(r"#\s+size\s+count", line)), None)
    if head is None:
        raise InputError(f"{path}: the table has no head (# size count type ... time)")
    names = head.lstrip("# ").split()
    column = names.index("time")
    found = []
    for number, line in enumerate(lines, start=1):
        cells = line.split()
        if line.startswith("#") or not cells or not cells[0].isdigit():
            continue
        try:
            size, microseconds = int(cells[0]), float(cells[column])
            _check_bandwidth(size, microseconds, float(cells[names.index("algbw")]))
        except (ValueError, IndexError):
            raise InputError(f"{path}:{number} is cut off or garbled: {line.strip()!r}") from None
        if size > 0 and microseconds > 0:
            found.append((size, microseconds * 1e-6))
    if not found:
        raise InputError(f"{path}: the table has no rows")
    return found


def _check_bandwidth(size: int, microseconds: float, printed_gb_per_s: float) -> None:
    """Raises ValueError where size over time is not the algorithm bandwidth that stands beside
    (two decimals of GB/s), as in a row whose cells have shifted."""
    expected = size / microseconds / 1e3 if microseconds > 0 else 0.0
    if abs(expected - printed_gb_per_s) > 0.03 * expected + 0.01:
        raise ValueError
