"""Why a rule rejected a layout."""

from meshfit.job.spec import Job
from meshfit.mesh.facts import facts_of
from meshfit.mesh.rules import violations
from meshfit.mesh.spec import LayoutSpec


def message_of(job: Job, rule: str, layout: LayoutSpec) -> str | None:
    """What ``rule`` says of ``layout``; None where it keeps the rule."""
    facts = facts_of(model=job.model, training=job.training, topology=job.topology, layout=layout)
    broken = violations(facts, job.profile)
    return next((one.message for one in broken if one.rule == rule), None)
