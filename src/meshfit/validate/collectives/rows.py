"""Rows of a table of measured collectives."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from meshfit.errors import InputError
from meshfit.predict.costs.collectives import Collective
from meshfit.validate.csv_file import read_table

COLUMNS: tuple[str, ...] = (
    "source", "system", "op", "dtype", "ranks", "nodes", "ranks_per_node", "size_bytes", "time_us",
)  # fmt: skip
_COLLECTIVES: dict[str, Collective] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
}


class Case(NamedTuple):
    """What rows of all sizes, types and library versions share."""

    system: str
    collective: Collective
    ranks: int
    nodes: int


@dataclass(frozen=True, kw_only=True)
class CollectiveRow:
    """One measured collective.

    Attributes:
        size_bytes: the whole buffer as nccl-tests counts it.
        note: what the table says about the row.
    """

    id: str
    source: str
    system: str
    collective: Collective
    dtype: str
    ranks: int
    nodes: int
    size_bytes: int
    seconds: float
    note: str = ""

    @property
    def family(self) -> str:
        """``intra_node`` or ``multi_node``."""
        return "multi_node" if self.nodes > 1 else "intra_node"

    @property
    def is_of_one_thread(self) -> bool:
        """Whether one host thread starts all ranks (``nccl-tests -g 8``), which adds its own time
        to small messages: no training does so."""
        return re.search(r"-g (?!1\b)\d", self.note) is not None

    @property
    def case(self) -> Case:
        return Case(self.system, self.collective, self.ranks, self.nodes)

    @property
    def curve(self) -> tuple[object, ...]:
        """What the points of one run of nccl-tests share."""
        return self.case, self.source, self.dtype, self.note


def read_collective_rows(path: Path) -> list[CollectiveRow]:
    """The rows of a CSV file, in order.

    Raises:
        InputError: the file cannot be read, lacks columns, or a row holds what no measurement has.
    """
    found = read_table(path, COLUMNS)
    return [_row(cells, f"{path}:{number}", number) for number, cells in enumerate(found, start=2)]


def _row(cells: dict[str, str], where: str, line: int) -> CollectiveRow:
    collective = _COLLECTIVES.get(cells["op"])
    if collective is None:
        known = ", ".join(_COLLECTIVES)
        raise InputError(f"{where}: op {cells['op']!r} is none of {known}")
    try:
        numbers = [int(cells[name]) for name in ("ranks", "nodes", "size_bytes")]
        seconds = float(cells["time_us"]) * 1e-6
    except (TypeError, ValueError):
        raise InputError(f"{where}: ranks, nodes, size_bytes and time_us must be numbers") from None
    if min(*numbers) < 1 or not seconds > 0:
        raise InputError(f"{where}: ranks, nodes, size_bytes and time_us must be greater than 0")
    ranks, nodes, size_bytes = numbers
    if ranks % nodes:
        raise InputError(f"{where}: {ranks} ranks do not fill {nodes} nodes evenly")
    return CollectiveRow(
        id=f"{cells['system']}/{cells['op']}/{nodes}x{ranks // nodes}/{size_bytes}/{line}",
        source=cells["source"],
        system=cells["system"],
        collective=collective,
        dtype=cells["dtype"],
        ranks=ranks,
        nodes=nodes,
        size_bytes=size_bytes,
        seconds=seconds,
        note=cells.get("note") or "",
    )
