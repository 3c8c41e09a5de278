"""Layouts of a plan that a person asked for, or that would be fast if they fitted, and the one
change that would help each."""

from typing import Any

import numpy as np

from meshfit.funnel.check.advising import changes_to_fit, fitting_change, what_is_needed
from meshfit.funnel.check.checking import check_document
from meshfit.funnel.space.planning import Plan
from meshfit.predict.verdict import DOES_NOT_FIT

MOST = 3
CLOSE = 1.5
"""Times its capacity up to which a layout's memory is worth a change; beyond, it is another layout."""
_LOOKED_AT = 1000
"""Layouts looked through for another family."""
_KEYS = ("layout", "label", "verdict", "violations", "changes", "advice", "absent")


def asked_documents(plan: Plan) -> list[dict[str, Any]]:
    """``asked`` of ``plan --json``: the job's ``layout`` and ``baseline`` as ``check`` sees them.

    ``rank`` is that of the plan, None where it has none: an illegal layout, or one that the search
    leaves out.
    """
    named = {"layout": plan.job.layout, "baseline": plan.job.baseline}
    documents = []
    for name, layout in named.items():
        if layout is None:
            continue
        document = check_document(plan.job, layout)
        interval = (document.get("interval") or {}).get("step_time")
        documents.append(
            {"name": name}
            | {key: document[key] for key in _KEYS}
            | {"layout": layout.as_json()}
            | {"rank": plan.rank_of(layout), "step_time": interval and interval["middle"]}
        )
    return documents


def too_large_documents(plan: Plan) -> list[dict[str, Any]]:
    """``too_large`` of ``plan --json``: layouts that come close to fitting and are faster than all
    that fit, the fastest of each family; with what they need and the changes that make them fit."""
    fitting, speed = plan.fitting_order(), plan.estimates.tokens_per_s
    capacity_bytes = plan.job.topology.accelerator.memory_bytes
    is_close = plan.estimates.memory_middle_bytes <= CLOSE * capacity_bytes
    is_faster = speed > (speed[fitting[0]] if len(fitting) else 0.0)
    rows = np.flatnonzero((plan.verdicts == DOES_NOT_FIT) & is_close & is_faster)
    rows = rows[np.argsort(-speed[rows], kind="stable")]
    families: dict[str, int] = {}
    for index in map(int, rows[:_LOOKED_AT]):
        families.setdefault(plan.layout(index).family, index)
    return [_too_large(plan, index) for index in list(families.values())[:MOST]]


def _too_large(plan: Plan, index: int) -> dict[str, Any]:
    layout = plan.layout(index)
    changes = changes_to_fit(plan.job, layout)[:MOST]
    needed = what_is_needed(plan.job, layout, plan.estimates, index)
    return {
        "layout": layout.as_json(),
        "label": layout.label,
        "verdict": plan.verdict(index),
        "step_time": float(plan.estimates.step_middle_s[index]),
        "changes": [fitting_change(change) for change in changes],
        "advice": [needed, *map(str, changes)],
    }
