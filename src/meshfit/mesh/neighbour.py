"""The legal layout that is nearest to one that is not."""

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import (
    COLUMNS,
    CP_METHODS,
    OFFLOAD,
    RECOMPUTE,
    SCHEDULES,
    Candidates,
)
from meshfit.mesh.spec import LayoutSpec

_DEGREES = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch_size")
_MESH = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "ep", "etp")
_POLICIES = tuple(name for name in COLUMNS if name not in (*_DEGREES, "stage_split"))

_OTHER_POLICY = 0.5
"""How far another policy is, in doublings of a degree."""


class Neighbours:
    """Finds, in a set of layouts, the nearest to any given one.

    The distance is how many doublings or halvings of degrees lie between them, and half a doubling
    for each policy that differs.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    def nearest(self, layout: LayoutSpec) -> LayoutSpec | None:
        """The nearest of the set, the first among equals; None of an empty set."""
        return next(iter(self.nearest_meshes(layout, 1)), None)

    def nearest_meshes(self, layout: LayoutSpec, most: int) -> list[LayoutSpec]:
        """Up to ``most`` of the set, the nearest first, no two with the same degrees."""
        if not len(self._candidates):
            return []
        away = self._distances(layout)
        meshes = np.stack([getattr(self._candidates, name) for name in _MESH], axis=1)
        found: list[LayoutSpec] = []
        for _ in range(most):
            row = int(np.argmin(away))
            if not np.isfinite(away[row]):
                break
            found.append(self._candidates.layout(row))
            away[(meshes == meshes[row]).all(axis=1)] = np.inf
        return found

    def _distances(self, layout: LayoutSpec) -> NDArray[np.float32]:
        one = Candidates.from_layouts([_known(layout)])
        away = np.zeros(len(self._candidates), dtype=np.float32)
        for name in _DEGREES:
            away += np.abs(self._doublings[name] - np.float32(np.log2(getattr(layout, name))))
        for name in _POLICIES:
            away += _OTHER_POLICY * (getattr(self._candidates, name) != getattr(one, name))
        away += _OTHER_POLICY * (self._candidates.stage_split != self._split_code(layout))
        return away

    def _split_code(self, layout: LayoutSpec) -> int:
        """The set's own code of the layout's stages; one that no row has when it knows none."""
        splits = self._candidates.stage_splits
        return splits.index(layout.stage_layers) if layout.stage_layers in splits else -1

    @cached_property
    def _doublings(self) -> dict[str, NDArray[np.float32]]:
        return {
            name: np.log2(getattr(self._candidates, name)).astype(np.float32) for name in _DEGREES
        }


def is_known(layout: LayoutSpec) -> bool:
    """Whether every policy of the layout is one that candidates can have."""
    return _known(layout) == layout


def _known(layout: LayoutSpec) -> LayoutSpec:
    """The layout with the default of each policy that no candidate can have."""
    default = LayoutSpec()
    return replace(
        layout,
        schedule=layout.schedule if layout.schedule in SCHEDULES else default.schedule,
        recompute=layout.recompute if layout.recompute in RECOMPUTE else default.recompute,
        cp_method=layout.cp_method if layout.cp_method in CP_METHODS else default.cp_method,
        offload=layout.offload if layout.offload in OFFLOAD else default.offload,
    )
