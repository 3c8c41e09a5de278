"""For a layout that does not fit: the single changes that would make it fit."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshfit.mesh.candidates import Candidates
from meshfit.mesh.changes import Change
from meshfit.mesh.facts import facts_of
from meshfit.mesh.rules import allowed
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.basis import Basis
from meshfit.predict.coverage import COVERED_SCHEDULES
from meshfit.predict.estimate import estimate_on
from meshfit.predict.verdict import FITS, verdict_codes
from meshfit.profile import EngineProfile
from meshfit.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class FittingChange:
    """One change of a layout that keeps its world size.

    ``slowdown`` is its predicted step time over that of the layout it changes.
    """

    layout: LayoutSpec
    words: str
    memory_high_bytes: float
    slowdown: float

    def __str__(self) -> str:
        return (
            f"fits with {self.words}: at most {format_bytes(self.memory_high_bytes)}, "
            f"predicted step time x{self.slowdown:.2f}"
        )


def changes_that_fit(
    layout: LayoutSpec,
    changes: Sequence[Change],
    basis: Basis,
    *,
    rules: EngineProfile,
    headroom_fraction: float,
) -> tuple[FittingChange, ...]:
    """Those of ``changes`` that are legal and predicted to fit, the fastest first.

    Args:
        basis: what predictions rest on; ``rules``: the engine whose rules hold.
    """
    topology = basis.topology
    tried = [change for change in changes if change.layout.schedule in COVERED_SCHEDULES]
    facts = facts_of(model=basis.model, training=basis.training, topology=topology)
    legal = allowed(Candidates.from_layouts([change.layout for change in tried]), rules, facts)
    tried = [change for change, is_legal in zip(tried, legal, strict=True) if is_legal]
    candidates = Candidates.from_layouts([layout, *(change.layout for change in tried)])
    estimates = estimate_on(basis, candidates)
    codes = verdict_codes(
        middle_bytes=estimates.memory_middle_bytes,
        high_bytes=estimates.memory_high_bytes,
        capacity_bytes=topology.accelerator.memory_bytes,
        headroom_fraction=headroom_fraction,
    )
    step_s = estimates.step_middle_s
    return tuple(
        FittingChange(
            layout=tried[row - 1].layout,
            words=tried[row - 1].words,
            memory_high_bytes=float(estimates.memory_high_bytes[row]),
            slowdown=float(step_s[row] / step_s[0]),
        )
        for row in np.argsort(step_s, kind="stable")
        if row > 0 and codes[row] == FITS
    )
