"""What ``meshfit plan`` answers: a job's space ranked, and what else is asked of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshfit.errors import InputError
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.explain.explaining import explain_document
from meshfit.funnel.plan.placements import placements_document
from meshfit.funnel.plan.plan_document import plan_document, unranked_document
from meshfit.funnel.plan.sensitivity import sensitivity_document
from meshfit.funnel.plan.tier3 import dry_run_rows
from meshfit.funnel.plan.timeline import write_timeline
from meshfit.funnel.space.planning import Plan, legal_space, make_plan
from meshfit.job.spec import Job
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.coverage import why_not_covered
from meshfit.report.documents.plan import PlanDocument

PLACED_LAYOUTS = 3
"""So many of the best are looked at for ``placements``."""


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What to say of a job's space.

    Attributes:
        top: candidates of the document.
        of_given_layout: ``explain``, ``placements`` and ``timeline`` are of the job's layout, not of
            what is recommended.
        explain: what each axis of a layout does.
        placements: where the axes of the best could sit, and what that costs.
        sensitivity: what the leaders' times do with what can only be assumed.
        dry_runs: so many of the best meshes are run on fake tensors.
        timeline: where the simulated step of a layout is written.
    """

    top: int = 20
    of_given_layout: bool = False
    explain: bool = False
    placements: bool = False
    sensitivity: bool = False
    dry_runs: int = 0
    timeline: Path | None = None


def planned_document(job: Job, asked: PlanRequest) -> PlanDocument:
    """What ``plan --json`` prints. A model that cannot be estimated has its layouts counted alone.

    Raises:
        InputError: no mesh is legal; the layout asked for is not; what is asked for rests on ranks
            and there are none; or the timeline cannot be written.
    """
    space = _space(job, asked.top)
    document = space.document
    if asked.explain:
        document["explain"] = explain_document(job, space.looked_at(asked))
    if asked.placements:
        document["placements"] = [placements_document(job, one) for one in space.placed(asked)]
    if asked.sensitivity:
        document["sensitivity"] = sensitivity_document(space.ranked())
    if asked.dry_runs:
        rows, seconds = dry_run_rows(space.ranked(), asked.dry_runs)
        document["dry_run"] = rows
        document["seconds_by_tier"]["dry_run"] = seconds
        document["seconds"] += seconds
    if asked.timeline is not None:
        write_timeline(job, space.looked_at(asked), asked.timeline)
    return document


def nothing_fits(document: PlanDocument) -> bool:
    """Whether layouts were ranked and none of them fits."""
    return "recommended" in document and document["recommended"] is None


@dataclass(frozen=True, kw_only=True)
class _Space:
    """A job's space; ``some`` is one of its layouts, where there is a plan the recommended one, and
    ``why_unranked`` is there where there is none."""

    job: Job
    document: PlanDocument
    some: LayoutSpec
    plan: Plan | None = None
    why_unranked: str | None = None

    def ranked(self) -> Plan:
        """
        Raises:
            InputError: no layouts are ranked.
        """
        if self.plan is None:
            raise InputError(
                f"--sensitivity, --placements and --dry-run take ranked layouts, and none are ranked: "
                f"{self.why_unranked}"
            )
        return self.plan

    def looked_at(self, asked: PlanRequest) -> LayoutSpec:
        """The job's layout where it is asked for or nothing is ranked, else the recommended one.

        Raises:
            InputError: it is not legal, or nothing is ranked and the job has none.
        """
        if self.job.layout is not None and (asked.of_given_layout or self.plan is None):
            require_legal(self.job, self.job.layout)
            return self.job.layout
        if self.plan is None:
            raise InputError(
                f"--explain and --timeline take the layout from --layout or from the job, as "
                f"{self.job.model.name} is not ranked; one that is legal: --layout {self.some.label}"
            )
        return self.some

    def placed(self, asked: PlanRequest) -> Sequence[LayoutSpec]:
        """The layouts whose placements are shown."""
        if asked.of_given_layout:
            return [self.looked_at(asked)]
        plan = self.ranked()
        return [plan.layout(int(index)) for index in plan.order[:PLACED_LAYOUTS]]


def _space(job: Job, top: int) -> _Space:
    why = why_not_covered(job.model)
    if why is not None:
        return _counted(job, why)
    plan = make_plan(job)
    document = plan_document(plan, top=top)
    recommended = document["recommended"]
    place = 0 if recommended is None else recommended["rank"] - 1
    some = plan.layout(int(plan.order[place]))
    return _Space(job=job, document=document, some=some, plan=plan)


def _counted(job: Job, why: str) -> _Space:
    """What rules alone say of the space, for a model that cannot be estimated."""
    started = time.perf_counter()
    space = legal_space(job)
    seconds = time.perf_counter() - started
    return _Space(
        job=job,
        document=unranked_document(job, space, seconds=seconds, why=why),
        some=space.candidates.layout(0),
        why_unranked=why,
    )
