"""What ``plan --json`` prints."""

from typing import Any

from meshfit.funnel.check.inert import inert_notes
from meshfit.funnel.plan.left_behind import asked_documents, too_large_documents
from meshfit.funnel.plan.meshes import leaders_of, mesh_documents, named_documents
from meshfit.funnel.plan.plan_rows import plan_row
from meshfit.funnel.plan.stages import stage_notes
from meshfit.funnel.plan.ties import find_ties, recommended_document
from meshfit.funnel.space.calibration_document import calibration_document
from meshfit.funnel.space.curves import curves_notes
from meshfit.funnel.space.estimating import stand_in_note
from meshfit.funnel.space.examples import message_of
from meshfit.funnel.space.planning import Plan
from meshfit.job.spec import Job
from meshfit.mesh.generate import Generated
from meshfit.mesh.neighbour import Neighbours
from meshfit.report.documents import SCHEMA_VERSION
from meshfit.report.documents.plan import PlanDocument, SpaceDocument


def plan_document(plan: Plan, *, top: int = 20) -> PlanDocument:
    """The best ``top`` candidates, the size of the space, and what each tier took."""
    shown = [int(index) for index in plan.order[:top]]
    leaders = leaders_of(plan)
    ties = find_ties(plan, leaders, shown=top)
    tied = ties.rows if ties is not None else ()
    inert = inert_notes(plan.job, [plan.layout(index) for index in shown])
    document = PlanDocument(
        schema_version=SCHEMA_VERSION,
        job=_job(plan.job),
        space=_space(plan.job, plan.generated),
        seconds=sum(plan.seconds_by_tier.values()),
        seconds_by_tier=plan.seconds_by_tier,
        headroom=plan.job.headroom_fraction,
        notes=[
            *plan.job.notes,
            *curves_notes(plan.job),
            *_stand_in(plan),
            *stage_notes(plan, shown),
            *inert,
        ],
        candidates=[plan_row(plan, index, tied=index in tied) for index in shown],
    )
    document["recommended"] = None if ties is None else recommended_document(plan, ties)
    document["meshes"] = mesh_documents(plan, leaders, tied)
    document["named"] = named_documents(plan)
    document["asked"] = asked_documents(plan)
    document["too_large"] = too_large_documents(plan)
    if (calibration := calibration_document(plan)) is not None:
        document["calibration"] = calibration
    return document


def unranked_document(job: Job, generated: Generated, *, seconds: float, why: str) -> PlanDocument:
    """The space of a model that cannot be estimated: counts and refusals, no candidates."""
    return PlanDocument(
        schema_version=SCHEMA_VERSION,
        job=_job(job),
        space=_space(job, generated),
        seconds=seconds,
        seconds_by_tier={"rules": seconds},
        headroom=job.headroom_fraction,
        notes=[*job.notes, f"Legal layouts are counted, not ranked: {why}."],
        candidates=[],
    )


def _job(job: Job) -> dict[str, Any]:
    return {"name": job.name, "model": job.model.name, "engine": job.profile.name}


def _space(job: Job, generated: Generated) -> SpaceDocument:
    return {
        "legal": len(generated.candidates),
        "rejected": generated.rejected,
        "examples": _examples(job, generated),
    }


def _stand_in(plan: Plan) -> list[str]:
    note = stand_in_note(plan.job.profile)
    return [] if note is None else [note]


def _examples(job: Job, generated: Generated) -> dict[str, Any]:
    """Rule -> one layout that it rejected, why, and the nearest legal one."""
    neighbours = Neighbours(generated.candidates)
    examples = {}
    for rule, layout in generated.examples.items():
        nearest = neighbours.nearest(layout)
        examples[rule] = {
            "layout": layout.as_json(),
            "message": message_of(job, rule, layout),
            "nearest": None if nearest is None else nearest.as_json(),
        }
    return examples
