"""The legal layout that is nearest to one that is not."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import COLUMNS, Candidates
from meshfit.mesh.spec import LayoutSpec

_DEGREES = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch_size")
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
        if not len(self._candidates):
            return None
        one = Candidates.from_layouts([layout])
        away = np.zeros(len(self._candidates), dtype=np.float32)
        for name in _DEGREES:
            away += np.abs(self._doublings[name] - np.log2(getattr(one, name)).astype(np.float32))
        for name in _POLICIES:
            away += _OTHER_POLICY * (getattr(self._candidates, name) != getattr(one, name))
        away += _OTHER_POLICY * (self._candidates.stage_split != self._split_code(layout))
        return self._candidates.layout(int(np.argmin(away)))

    def _split_code(self, layout: LayoutSpec) -> int:
        """The set's own code of the layout's stages; one that no row has when it knows none."""
        splits = self._candidates.stage_splits
        return splits.index(layout.stage_layers) if layout.stage_layers in splits else -1

    @cached_property
    def _doublings(self) -> dict[str, NDArray[np.float32]]:
        return {
            name: np.log2(getattr(self._candidates, name)).astype(np.float32) for name in _DEGREES
        }
