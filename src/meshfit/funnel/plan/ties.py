"""Layouts that a prediction cannot tell from its first, and the simplest of them, which is recommended.

Two layouts tie where the 80 % interval of the difference of their steps holds 0. Both are drawn
together (``predict.time.spread``): what errs alike in both changes nothing, so two variants of one mesh
can be told apart inside of intervals that overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.funnel.plan.meshes import Leaders
from meshfit.funnel.plan.plan_rows import row_of
from meshfit.funnel.space.planning import Plan
from meshfit.mesh.simplicity import complexities
from meshfit.predict.estimates import Estimates
from meshfit.predict.simulate.tier2 import simulated
from meshfit.predict.verdict import DOES_NOT_FIT
from meshfit.report.documents.plan import RecommendedDocument

IntArray = NDArray[np.int64]

_LOW_END = 0.1
"""Quantile at which an 80 % interval begins."""
_SIMPLEST = 1000
"""Layouts, the simplest of those that may tie, whose difference is drawn by closed form."""
_SIMULATED = 20
"""Of these that tie so, at most so many are simulated and drawn again."""


@dataclass(frozen=True, kw_only=True)
class Ties:
    """The layouts that tie with the one predicted fastest, itself among them, of all looked at.

    Attributes:
        rows: of the plan, the simplest first; of equally simple ones the fastest.
        fastest: row of the plan.
        estimates: of ``rows``, in their order, all of them simulated where that is possible.
    """

    rows: tuple[int, ...]
    fastest: int
    estimates: Estimates


def find_ties(plan: Plan, leaders: Leaders, *, shown: int) -> Ties | None:
    """Looks at the plan's first ``shown`` layouts, those that were simulated, the best of each mesh and
    the simplest of all that may tie; all of the first one's verdict. None where nothing fits."""
    fastest = int(leaders.rows[0])
    if plan.verdicts[fastest] == DOES_NOT_FIT:
        return None
    simple = _simplest(plan, leaders.estimates, fastest)
    known = np.union1d(plan.order[: plan.num_simulated], leaders.rows)
    rows = np.unique(np.concatenate([plan.order[:shown], known, simple]))
    rows = rows[plan.verdicts[rows] == plan.verdicts[fastest]]
    of_rows = leaders.estimates.take(rows)
    of_rows = simulated(of_rows, np.flatnonzero(np.isin(rows, simple) & ~np.isin(rows, known)))
    tied = _tied(of_rows, int(np.flatnonzero(rows == fastest)[0]))
    tied = tied[_by_simplicity(of_rows.take(tied))]
    return Ties(rows=tuple(rows[tied].tolist()), fastest=fastest, estimates=of_rows.take(tied))


def recommended_document(plan: Plan, ties: Ties) -> RecommendedDocument:
    """The simplest layout that ties with the fastest, and why it is recommended."""
    row = ties.rows[0]
    layout = plan.layout(row)
    return RecommendedDocument(
        **row_of(plan.job, layout, ties.estimates, 0, verdict=plan.verdict(row)),
        rank=plan.rank_of(layout) or 1,
        among=len(ties.rows),
        reason=_reason(ties),
    )


def _reason(ties: Ties) -> str:
    if len(ties.rows) == 1:
        return "predicted fastest, and no layout looked at ties with it"
    if ties.rows[0] == ties.fastest:
        return f"predicted fastest, and the simplest of {len(ties.rows)} layouts that tie"
    steps_s = ties.estimates.step_middle_s
    longer = steps_s[0] / steps_s[ties.rows.index(ties.fastest)] - 1
    return (
        f"the simplest of {len(ties.rows)} layouts that tie: predictions cannot tell it from the fastest, "
        f"whose step is predicted {longer:.1%} shorter"
    )


def _simplest(plan: Plan, estimates: Estimates, fastest: int) -> IntArray:
    """Rows that tie by what is known of them so far, the simplest first."""
    may_tie = (plan.verdicts == plan.verdicts[fastest]) & (
        estimates.step_low_s <= estimates.step_high_s[fastest]
    )
    rows = np.flatnonzero(may_tie)
    rows = np.append(rows[_by_simplicity(estimates.take(rows))][:_SIMPLEST], fastest)
    tied = _tied(estimates.take(rows), len(rows) - 1)
    return np.asarray(rows[tied][:_SIMULATED])


def _by_simplicity(estimates: Estimates) -> IntArray:
    """Its rows, the simplest first, of equally simple ones the fastest."""
    merits: Sequence[NDArray[np.generic]] = complexities(estimates.candidates)
    return np.lexsort((estimates.step_middle_s, *reversed(merits)))


def _tied(estimates: Estimates, fastest: int) -> IntArray:
    """Its rows that cannot be told from row ``fastest``."""
    steps = estimates.drawn_steps(np.arange(len(estimates)))
    low = np.quantile(steps / steps[fastest], _LOW_END, axis=1)
    return np.flatnonzero(low <= 1)
