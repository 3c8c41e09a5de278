"""Every row beside what is said of it without its own system, and without its own size."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshfit.errors import InputError
from meshfit.predict.costs.constants import link_constants
from meshfit.predict.costs.tables.collectives import NodeCurve
from meshfit.validate.collectives.fit import fitted_to, measured_curves
from meshfit.validate.collectives.rows import Case, CollectiveRow
from meshfit.validate.collectives.systems import topology_of
from meshfit.validate.rows import NotModelledError

FEWEST_SIZES = 5
"""Of a curve: neighbours of a size that is held back must say something of it."""


@dataclass(frozen=True, kw_only=True)
class CollectivePrediction:
    """One row and what is predicted for it, in seconds.

    Attributes:
        formula: with constants fitted without the row's system, and its 80 % interval.
        interpolated: between the neighbouring sizes of its curve; None where the row is kept.
        reason: why there is no formula.
    """

    row: CollectiveRow
    formula: float | None = None
    low: float | None = None
    high: float | None = None
    interpolated: float | None = None
    reason: str | None = None


def predict_collectives(
    rows: Sequence[CollectiveRow], tell: Callable[[str], None] = lambda system: None
) -> list[CollectivePrediction]:
    """Predictions of all rows, in order.

    Args:
        tell: called with the name of each system that was left out, as it goes.
    """
    reasons = {row.id: reason for row in rows if (reason := _reason(row)) is not None}
    modelled = [row for row in rows if row.id not in reasons]
    formulas = _formulas(modelled, tell)
    between = interpolated(rows)
    known = link_constants()
    found = []
    for row in rows:
        seconds = formulas.get((row.case, row.size_bytes)) if row.id not in reasons else None
        spread = known["spread.network" if row.nodes > 1 else "spread.node"]
        found.append(
            CollectivePrediction(
                row=row,
                formula=seconds,
                low=None if seconds is None else seconds / spread,
                high=None if seconds is None else seconds * spread,
                interpolated=between.get(row.id),
                reason=reasons.get(row.id),
            )
        )
    return found


def interpolated(rows: Sequence[CollectiveRow]) -> dict[str, float]:
    """Row id -> seconds by the rest of its curve, for every other size of each curve."""
    curves: dict[object, dict[int, list[CollectiveRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        curves[row.curve][row.size_bytes].append(row)
    found: dict[str, float] = {}
    for by_size in curves.values():
        sizes = sorted(by_size)
        kept, held_back = sizes[::2], [size for size in sizes[1::2] if size < sizes[-1]]
        if len(sizes) < FEWEST_SIZES:
            continue
        times = [float(np.median([row.seconds for row in by_size[size]])) for size in kept]
        curve = NodeCurve(np.log2(kept), np.log2(times))
        seconds = curve.seconds(np.array(held_back, dtype=np.float64))
        for size, value in zip(held_back, seconds, strict=True):
            found |= {row.id: float(value) for row in by_size[size]}
    return found


def _reason(row: CollectiveRow) -> str | None:
    """Why a row is not modelled, None where it is."""
    try:
        topology_of(row.system, row.nodes, row.ranks // row.nodes)
    except (NotModelledError, InputError) as error:
        return str(error)
    return None


def _formulas(
    rows: Sequence[CollectiveRow], tell: Callable[[str], None]
) -> Mapping[tuple[Case, int], float]:
    """Seconds by the formula without the system that is predicted.

    What one thread starts is scored, but nothing is fitted to it.
    """
    scored = measured_curves(rows)
    fitted = measured_curves([row for row in rows if not row.is_of_one_thread])
    found: dict[tuple[Case, int], float] = {}
    for system in sorted(set(scored.systems)):
        own = scored.of(system)
        seconds = own.predicted(fitted_to(fitted.without(system)))
        for point, value in zip(own.points, seconds, strict=True):
            found[point.case, point.size_bytes] = float(value)
        tell(system)
    return found
