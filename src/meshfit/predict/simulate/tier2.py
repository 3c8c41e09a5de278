"""Step times of chosen candidates from their timelines, in place of the closed form's."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.basis import Basis
from meshfit.predict.estimates import Estimates
from meshfit.predict.grouped import groups_with_machines
from meshfit.predict.shape.columns import step_columns
from meshfit.predict.simulate.play_step import play_step
from meshfit.predict.simulate.timeline import Timeline
from meshfit.predict.time.terms import TERMS

IntArray = NDArray[np.int64]

MOST_ACTIONS = 2_000_000
"""Actions times layouts that are played at once: a handful of arrays of 16 MiB."""


def simulated(estimates: Estimates, rows: IntArray) -> Estimates:
    """``estimates`` with the step times of ``rows`` as their timelines give them."""
    some = estimates.candidates.take(rows)
    terms = np.zeros((len(rows), len(TERMS)))
    for part in _with_equal_programs(some, estimates.basis):
        for which, group, machine in groups_with_machines(some.take(part), estimates.basis):
            terms[part[which]] = play_step(group, machine).terms()
    return estimates.retimed(rows, terms)


def num_actions(estimates: Estimates, rows: IntArray) -> IntArray:
    """Forwards and backwards of all micro-batches on all stages: what playing each row costs."""
    some, basis = estimates.candidates.take(rows), estimates.basis
    micro_batches = step_columns(some, basis.training, basis.profile).micro_batches
    return np.asarray(2 * micro_batches * some.pp * some.vpp, dtype=np.int64)


def timeline_of(layout: LayoutSpec, basis: Basis) -> Timeline:
    """The timeline of one layout."""
    ((_, group, machine),) = groups_with_machines(Candidates.from_layouts([layout]), basis)
    return play_step(group, machine)


def _with_equal_programs(candidates: Candidates, basis: Basis) -> Iterator[IntArray]:
    """Rows with as many micro-batches, few enough at once for their timelines to stay small."""
    micro_batches = step_columns(candidates, basis.training, basis.profile).micro_batches
    for count in np.unique(micro_batches):
        same = np.flatnonzero(micro_batches == count)
        stages = int((candidates.pp * candidates.vpp)[same].max())
        at_once = max(1, MOST_ACTIONS // (3 * stages * int(count)))
        for start in range(0, len(same), at_once):
            yield same[start : start + at_once]
