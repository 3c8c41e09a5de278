"""``meshfit check``: one given layout, all broken rules at once, then whether it fits."""

from typing import Any

from meshfit.errors import InputError
from meshfit.funnel.planning import estimate_candidates
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.facts import facts_of
from meshfit.mesh.groups import describe_groups
from meshfit.mesh.rules import Violation, violations
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.verdict import VERDICTS
from meshfit.units import format_bytes, format_percent

EXIT_CODES = {"fits": 0, "tight": 0, "does_not_fit": 1, "invalid": 2}
"""What the command ends with, by verdict."""


def broken_rules(job: Job, layout: LayoutSpec) -> tuple[Violation, ...]:
    """Every rule of the job's engine that ``layout`` breaks."""
    facts = facts_of(model=job.model, training=job.training, topology=job.topology, layout=layout)
    return violations(facts, job.profile)


def require_legal(job: Job, layout: LayoutSpec) -> None:
    """Raises InputError with every broken rule of ``layout``, one a line."""
    broken = broken_rules(job, layout)
    if broken:
        listed = "\n".join(f"  {violation.rule}: {violation.message}" for violation in broken)
        raise InputError(f"layout {layout.label} is not legal:\n{listed}")


def check_document(job: Job, layout: LayoutSpec) -> dict[str, Any]:
    """What ``check --json`` prints: the verdict, all violations, memory per stage, time by term."""
    broken = broken_rules(job, layout)
    document: dict[str, Any] = {
        "schema_version": 1,
        "job": job.name,
        "layout": layout.as_full_json(),
        "label": layout.label,
        "engine": job.profile.name,
        "violations": [violation.as_json() for violation in broken],
        "notes": list(job.notes),
    }
    if broken:
        return document | {"verdict": "invalid", "memory": None, "time": None, "advice": []}
    estimates, verdicts = estimate_candidates(job, Candidates.from_layouts([layout]))
    prediction = estimates.prediction(0)
    verdict = VERDICTS[verdicts[0]]
    capacity = job.topology.accelerator.memory_bytes
    return document | {
        "verdict": verdict,
        "memory": {
            "capacity": capacity,
            "headroom": job.headroom_fraction,
            "interval": prediction.memory_total.as_json(),
            "stages": [stage.as_json() for stage in estimates.ranks(0)],
        },
        "time": prediction.time.as_json(),
        "interval": {"step_time": prediction.step_time.as_json()},
        "tokens_per_s": prediction.tokens_per_s,
        "binding": prediction.binding,
        "groups": [placed.as_json() for placed in describe_groups(layout, job.topology)],
        "advice": _advice(verdict, prediction.memory_total.high, capacity, job.headroom_fraction),
    }


def _advice(verdict: str, high_bytes: float, capacity_bytes: int, headroom: float) -> list[str]:
    if verdict == "fits":
        return []
    allowed = (1 - headroom) * capacity_bytes
    return [
        f"up to {format_bytes(high_bytes)} of {format_bytes(capacity_bytes)} are needed; with "
        f"{format_percent(headroom)} headroom at most {format_bytes(allowed)} may be"
    ]
