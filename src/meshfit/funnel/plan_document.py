"""What ``plan --json`` prints."""

from typing import Any

from meshfit.funnel.estimating import stand_in_note
from meshfit.funnel.planning import Plan
from meshfit.mesh.facts import facts_of
from meshfit.mesh.neighbour import Neighbours
from meshfit.mesh.rules import violations
from meshfit.mesh.spec import LayoutSpec
from meshfit.report.documents import SCHEMA_VERSION, PlanDocument, plan_candidate


def plan_document(plan: Plan, *, top: int = 20) -> PlanDocument:
    """The best ``top`` candidates, the size of the space, and what each tier took."""
    capacity = plan.job.topology.accelerator.memory_bytes
    return PlanDocument(
        schema_version=SCHEMA_VERSION,
        job={"name": plan.job.name, "model": plan.job.model.name, "engine": plan.job.profile.name},
        space={
            "legal": len(plan),
            "rejected": plan.generated.rejected,
            "examples": _examples(plan),
        },
        seconds=sum(plan.seconds_by_tier.values()),
        seconds_by_tier=plan.seconds_by_tier,
        headroom=plan.job.headroom_fraction,
        notes=[*plan.job.notes, *_stand_in(plan)],
        candidates=[
            plan_candidate(
                layout=plan.layout(index),
                prediction=plan.estimates.prediction(index),
                verdict=plan.verdict(index),
                capacity_bytes=capacity,
                baseline=plan.layout(index) == plan.job.baseline,
            )
            for index in map(int, plan.order[:top])
        ],
    )


def _stand_in(plan: Plan) -> list[str]:
    note = stand_in_note(plan.job.profile)
    return [] if note is None else [note]


def _examples(plan: Plan) -> dict[str, Any]:
    """Rule -> one layout that it rejected, why, and the nearest legal one."""
    neighbours = Neighbours(plan.generated.candidates)
    examples = {}
    for rule, layout in plan.generated.examples.items():
        nearest = neighbours.nearest(layout)
        examples[rule] = {
            "layout": layout.as_json(),
            "message": _message(plan, rule, layout),
            "nearest": None if nearest is None else nearest.as_json(),
        }
    return examples


def _message(plan: Plan, rule: str, layout: LayoutSpec) -> str | None:
    job = plan.job
    facts = facts_of(model=job.model, training=job.training, topology=job.topology, layout=layout)
    broken = violations(facts, job.profile)
    return next((one.message for one in broken if one.rule == rule), None)
