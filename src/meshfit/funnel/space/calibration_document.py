"""What the calibration file changed in a plan: factors, and the order of the leaders without them."""

from typing import Any

import numpy as np

from meshfit.funnel.space.calibrating import Learned
from meshfit.funnel.space.planning import Plan, ranking, verdicts_of
from meshfit.predict.calibration import Correction, formula_only
from meshfit.record.residuals import default_calibration_path

CORRECTIONS = ("compute", "collectives", "step_time", "memory")
LEADERS = 10


def calibration_document(plan: Plan) -> dict[str, Any] | None:
    """``calibration`` of ``plan --json``; None where no file is to be used.

    ``order`` has the leaders with their rank and step time, and both as they were without
    corrections, ranked among the layouts that this plan has simulated.
    """
    learned = plan.learned
    if learned.file is None:
        return None
    return learned_document(learned) | {
        "order": _order(plan) if learned.changes_anything else [],
    }


def learned_document(learned: Learned) -> dict[str, Any]:
    """The file (``default``: the person's own, which no one had to name), its rows, and the factor of
    every kind of term."""
    return {
        "file": str(learned.file),
        "default": learned.file == default_calibration_path(),
        "rows": learned.rows,
        "left_out": learned.left_out,
        "factors": {name: _correction(getattr(learned.calibration, name)) for name in CORRECTIONS},
    }


def _correction(correction: Correction) -> dict[str, Any]:
    return {
        "factor": correction.factor,
        "spread": correction.spread,
        "layouts": correction.samples,
        "basis": correction.basis,
    }


def _order(plan: Plan) -> list[dict[str, Any]]:
    simulated = plan.order[: plan.num_simulated]
    basis = plan.estimates.basis
    some = plan.estimates.take(simulated)
    plain = some.under(formula_only(basis.topology, basis.profile.name))
    before = ranking(plain, verdicts_of(plan.job, plain))
    rank_before = np.empty(len(before), dtype=np.int64)
    rank_before[before] = np.arange(len(before))
    return [
        {
            "label": plan.layout(int(index)).label,
            "layout": plan.layout(int(index)).as_json(),
            "rank": position + 1,
            "rank_without": int(rank_before[position]) + 1,
            "step_time": float(some.step_middle_s[position]),
            "step_time_without": float(plain.step_middle_s[position]),
        }
        for position, index in enumerate(simulated[:LEADERS])
    ]
