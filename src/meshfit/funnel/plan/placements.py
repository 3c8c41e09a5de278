"""``plan --placements``: where a layout's axes could sit, and what each placement costs."""

from dataclasses import replace
from typing import Any

import numpy as np

from meshfit.funnel.space.calibrating import basis_of
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.orders import levels_of_axes, orders, ranks_in_order, same_order
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.basis import Basis
from meshfit.predict.estimate import estimate_on
from meshfit.predict.simulate.tier2 import simulated
from meshfit.predict.time.terms import EXPOSED_TERMS, TERMS


def placements_document(job: Job, layout: LayoutSpec) -> dict[str, Any]:
    """One entry a candidate of ``placements`` of ``plan --json``.

    ``settable``: whether the engine can be told an order (``rank_order`` of a job).
    ``placements[]``, the fastest first: ``order`` (axes from the outermost), ``levels`` (axis: the
    innermost level that holds its groups), ``step_time``, ``exposed`` (seconds of communication that
    shows), ``slower`` (share that the step takes longer than the fastest), ``engine_order``
    (whether it is how the job's ranks are laid now), and ``by_rank_order`` (ranks of the engine's own
    order by accelerator, which give this placement without the engine's help). ``hosts[]`` of
    ``name`` and ``ranks``: what the fastest puts on each host, in the engine's ranks; ``devices``:
    the device that each of them takes.
    """
    basis = basis_of(job)
    found = sorted(
        (_placement(job, layout, order, basis) for order in orders(layout)),
        key=lambda one: (one["step_time"], not one["engine_order"]),
    )
    fastest = found[0]["step_time"]
    for one in found:
        one["slower"] = one["step_time"] / fastest - 1
    return {
        "layout": layout.as_json(),
        "label": layout.label,
        "settable": job.profile.any_rank_order,
        "placements": found,
        "hosts": _hosts(job, found[0]["by_rank_order"]),
    }


def _placement(
    job: Job, layout: LayoutSpec, order: tuple[str, ...], basis: Basis
) -> dict[str, Any]:
    profile = replace(basis.profile, rank_order=order)
    one = Candidates.from_layouts([layout])
    predicted = simulated(estimate_on(replace(basis, profile=profile), one), np.array([0]))
    terms = dict(zip(TERMS, predicted.time_terms[0], strict=True))
    return {
        "order": [axis for axis in order if getattr(layout, axis) > 1],
        "levels": levels_of_axes(layout, job.topology, order, profile.expert_fold),
        "step_time": float(predicted.step_middle_s[0]),
        "exposed": float(sum(terms[name] for name in EXPOSED_TERMS)),
        "engine_order": same_order(order, job.profile.rank_order, layout),
        "by_rank_order": list(ranks_in_order(layout, order, job.profile.rank_order)),
    }


def _hosts(job: Job, ranks: list[int]) -> list[dict[str, Any]]:
    per_host = job.topology.gpus_per_host
    return [
        {
            "name": job.topology.host_of(first),
            "ranks": ranks[first : first + per_host],
            "devices": list(job.topology.device_order or range(per_host)),
        }
        for first in range(0, len(ranks), per_host)
    ]
