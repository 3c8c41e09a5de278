"""Many layouts at once, as columns, so that rules and predictions are arithmetic on arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.spec import LayoutSpec

SCHEDULES: tuple[str, ...] = (
    "gpipe",
    "1f1b",
    "interleaved_1f1b",
    "looped_bfs",
    "interleaved_zero_bubble",
    "zbv_zero_bubble",
    "dualpipe_v",
)
RECOMPUTE: tuple[str, ...] = ("none", "selective", "operations", "alternate", "block", "full")
OFFLOAD: tuple[str | None, ...] = (None, "none", "cpu", "activations")
"""``cpu``: parameters, gradients and optimizer between uses; ``activations``: what forward keeps."""
OFFLOAD_NAMES: tuple[str, ...] = tuple(place or "none" for place in OFFLOAD)
"""The same as rules and searches name them: what a layout leaves out is ``none``."""
CP_METHODS: tuple[str | None, ...] = (None, "ring", "all_gather", "all_to_all", "hierarchical")
CP_METHOD_NAMES: tuple[str, ...] = tuple(method or "none" for method in CP_METHODS)
"""The same as rules and searches name them."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """N layouts. Every column is an integer array of shape [N].

    ``schedule``, ``recompute``, ``offload_to`` and ``cp_method`` are indices into the tuples above;
    ``stage_split`` is an index into ``stage_splits``, whose None means "as even as can be".
    Layouts that share (pp, vpp, schedule, stage_split) share a pipeline, and those are few: code
    that needs a loop loops over pipelines, never over layouts.
    """

    dp_replicate: IntArray
    dp_shard: IntArray
    tp: IntArray
    sp: IntArray
    cp: IntArray
    cp_method: IntArray
    cp_inner: IntArray
    pp: IntArray
    vpp: IntArray
    schedule: IntArray
    stage_split: IntArray
    ep: IntArray
    etp: IntArray
    zero_stage: IntArray
    micro_batch_size: IntArray
    recompute: IntArray
    recompute_layers: IntArray
    offload_to: IntArray
    stage_splits: tuple[tuple[int, ...] | None, ...] = (None,)

    def __len__(self) -> int:
        return len(self.pp)

    def take(self, which: NDArray[np.bool_] | IntArray) -> "Candidates":
        """The layouts that a mask or an index array picks."""
        columns = {name: getattr(self, name)[which] for name in COLUMNS}
        return Candidates(**columns, stage_splits=self.stage_splits)

    def layout(self, index: int) -> LayoutSpec:
        """One row as a ``LayoutSpec``."""
        row: dict[str, Any] = {name: int(getattr(self, name)[index]) for name in COLUMNS}
        split = self.stage_splits[row.pop("stage_split")]
        return LayoutSpec(
            **{key: row[key] for key in _PLAIN},
            sp=bool(row["sp"]),
            cp_method=CP_METHODS[row["cp_method"]],
            schedule=SCHEDULES[row["schedule"]],
            recompute=RECOMPUTE[row["recompute"]],
            offload=OFFLOAD[row["offload_to"]],
            stage_layers=split,
        )

    def find(self, layout: LayoutSpec) -> int | None:
        """The first row that is this layout; None where none is."""
        same = np.ones(len(self), dtype=np.bool_)
        for name in _PLAIN:
            same &= getattr(self, name) == getattr(layout, name)
        rows = map(int, np.flatnonzero(same))
        return next((row for row in rows if self.layout(row) == layout), None)

    @staticmethod
    def from_layouts(layouts: Sequence[LayoutSpec]) -> "Candidates":
        """Columns of given layouts, in order."""
        splits: dict[tuple[int, ...] | None, int] = {None: 0}
        for layout in layouts:
            splits.setdefault(layout.stage_layers, len(splits))
        coded = {
            "sp": [int(layout.sp) for layout in layouts],
            "cp_method": [CP_METHODS.index(layout.cp_method) for layout in layouts],
            "schedule": [SCHEDULES.index(layout.schedule) for layout in layouts],
            "recompute": [RECOMPUTE.index(layout.recompute) for layout in layouts],
            "offload_to": [_offload_code(layout.offload) for layout in layouts],
            "stage_split": [splits[layout.stage_layers] for layout in layouts],
        }
        plain = {key: [getattr(layout, key) for layout in layouts] for key in _PLAIN}
        columns = {
            key: np.asarray(values, dtype=np.int64) for key, values in (plain | coded).items()
        }
        return Candidates(**columns, stage_splits=tuple(splits))


def _offload_code(offload: str | None) -> int:
    """A place that no engine knows is left to the rules, which see the layout itself."""
    return OFFLOAD.index(offload) if offload in OFFLOAD else 0


COLUMNS: tuple[str, ...] = tuple(f.name for f in fields(Candidates) if f.name != "stage_splits")
_PLAIN = (
    "dp_replicate", "dp_shard", "tp", "cp", "cp_inner", "pp", "vpp", "ep", "etp",
    "zero_stage", "micro_batch_size", "recompute_layers",
)  # fmt: skip
