"""One predicted layout as a row of a plan."""

from meshfit.funnel.space.planning import Plan
from meshfit.job.spec import Job
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.campaign import campaign
from meshfit.predict.estimates import Estimates
from meshfit.predict.verdict import VERDICTS
from meshfit.report.documents.plan import (
    CampaignDocument,
    PlanCandidateDocument,
    campaign_document,
    plan_candidate,
)


def plan_row(
    plan: Plan, index: int, estimates: Estimates | None = None, *, tied: bool = False
) -> PlanCandidateDocument:
    """Row ``index`` of the plan, by the plan's estimates or by those given; ``tied`` with the fastest."""
    row = row_of(
        plan.job,
        plan.layout(index),
        estimates or plan.estimates,
        index,
        verdict=plan.verdict(index),
    )
    row["tied"] = tied
    return row


def row_of(
    job: Job, layout: LayoutSpec, estimates: Estimates, index: int, *, verdict: str
) -> PlanCandidateDocument:
    """Row ``index`` of ``estimates``, which is ``layout``."""
    assert verdict in VERDICTS
    training = job.training
    return plan_candidate(
        layout=layout,
        prediction=estimates.prediction(index),
        verdict=verdict,
        capacity_bytes=job.topology.accelerator.memory_bytes,
        baseline=layout == job.baseline,
        campaign=_campaign(job, float(estimates.step_middle_s[index])),
        useful_share=training.useful_tokens_per_step / training.tokens_per_step,
    )


def _campaign(job: Job, step_s: float) -> CampaignDocument | None:
    """The whole training run at so many seconds a step, where the job has a budget."""
    if job.budget is None:
        return None
    whole = campaign(
        job.budget,
        model=job.model,
        training=job.training,
        topology=job.topology,
        step_s=step_s,
    )
    return campaign_document(whole, job.budget.currency)
