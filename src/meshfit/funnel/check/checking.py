"""``meshfit check``: one given layout, all broken rules at once, then whether it fits."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from meshfit.engines import PROFILES
from meshfit.errors import InputError
from meshfit.funnel.check.advising import (
    changes_to_be_legal,
    changes_to_fit,
    fitting_change,
    legal_change,
    what_is_needed,
)
from meshfit.funnel.check.inert import inert_notes
from meshfit.funnel.space.calibrating import learn
from meshfit.funnel.space.calibration_document import learned_document
from meshfit.funnel.space.estimating import estimating_profile, stand_in_note, why_not_modelled
from meshfit.funnel.space.planning import estimate_candidates
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.facts import facts_of
from meshfit.mesh.generate import generate
from meshfit.mesh.groups import describe_groups
from meshfit.mesh.neighbour import Neighbours
from meshfit.mesh.rules import Violation, violations, warnings
from meshfit.mesh.search import SearchSpec
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.verdict import VERDICTS

EXIT_CODES = {"fits": 0, "tight": 0, "does_not_fit": 1, "invalid": 2, None: 0}
"""What the command ends with, by verdict (None: legal, and memory could not be predicted)."""

MOST_NEIGHBOURS = 3
"""Of the legal layouts near an illegal one, how many are named."""

MOST_CHANGES = 3
"""Of the changes that would make a layout fit, how many are advised."""


def broken_rules(job: Job, layout: LayoutSpec) -> tuple[Violation, ...]:
    """Every rule of the job's engine that ``layout`` breaks."""
    return violations(_facts(job, layout), job.profile)


def require_legal(job: Job, layout: LayoutSpec, *, what: str = "layout") -> None:
    """Raises InputError with every broken rule of ``layout``, one a line; ``what`` is its name."""
    broken = broken_rules(job, layout)
    if broken:
        listed = "\n".join(f"  {violation.rule}: {violation.message}" for violation in broken)
        raise InputError(f"{what} {layout.label} is not legal:\n{listed}")


def legal_neighbours(job: Job, layout: LayoutSpec) -> list[LayoutSpec]:
    """Legal layouts of the job near one that is not, the nearest first; none where no layout of
    its ``search`` on its accelerators is legal.

    The layout's own micro-batch and virtual stages, or one of each, are tried before all others.
    """
    for search in (search_near(job.search, layout), job.search):
        space = generate(job.model, job.training, job.topology, job.profile, search)
        if len(space.candidates):
            return Neighbours(space.candidates).nearest_meshes(layout, MOST_NEIGHBOURS)
    return []


def search_near(search: SearchSpec, layout: LayoutSpec) -> SearchSpec:
    """``search`` with what it leaves open of the policies that make a space large."""
    return replace(
        search,
        micro_batch_size=search.micro_batch_size or (1, layout.micro_batch_size),
        vpp=search.vpp or (1, layout.vpp),
    )


def check_document(job: Job, layout: LayoutSpec) -> dict[str, Any]:
    """What ``check --json`` prints: the verdict, all violations, memory per stage, time by term.

    ``changes`` are single ones that make the layout legal, or make it fit, and ``advice`` says them.
    ``nearest_layouts`` are legal ones near an illegal one, with different degrees. ``warnings`` have
    the keys of violations and leave a layout legal. ``estimated_with`` names the
    profile that memory and time were predicted with. A legal layout that cannot be predicted has no
    verdict; ``absent`` says why.
    """
    broken = broken_rules(job, layout)
    note = stand_in_note(job.profile)
    document: dict[str, Any] = {
        "schema_version": 1,
        "job": job.name,
        "layout": layout.as_full_json(),
        "label": layout.label,
        "engine": job.profile.name,
        "violations": [violation.as_json() for violation in broken],
        "warnings": [one.as_json() for one in warnings(_facts(job, layout), job.profile)],
        "notes": list(job.notes),
        "memory": None,
        "time": None,
        "advice": [],
        "changes": [],
        "nearest_layouts": [],
        "estimated_with": None,
        "absent": {},
    }
    if broken:
        changes = changes_to_be_legal(job, layout)[:MOST_CHANGES]
        legal = legal_neighbours(job, layout)
        advice = [f"legal with {change.words}" for change in changes]
        if legal:
            advice.append(f"nearest legal layouts: {'; '.join(one.label for one in legal)}")
        return document | {
            "verdict": "invalid",
            "changes": [legal_change(change) for change in changes],
            "nearest_layouts": [one.as_json() for one in legal],
            "advice": advice,
        }
    reason = why_not_modelled(job, layout)
    if reason is not None:
        absent = dict.fromkeys(("verdict", "memory", "time"), reason)
        return document | {"verdict": None, "absent": absent}
    if note is not None:
        document["notes"].append(note)
    document["notes"] += inert_notes(job, [layout])
    return document | _predicted(job, layout)


def engine_documents(read: Callable[[str], Job], engines: Sequence[str]) -> list[dict[str, Any]]:
    """``engines[]`` of ``check --json``: what each engine makes of the job's layout.

    ``legal``, ``verdict``, ``violations`` and ``warnings`` are those of the engine, with its own
    option names; layout keys that are left out mean what they mean to it. ``all`` stands for every
    engine.

    Args:
        read: gives the job as for an engine of that name.

    Raises:
        InputError: no such engine, or the job is wrong.
    """
    names = [name for engine in engines for name in (PROFILES if engine == "all" else [engine])]
    return [_engine_row(read(name)) for name in dict.fromkeys(names)]


def _engine_row(job: Job) -> dict[str, Any]:
    assert job.layout is not None, "the job's own layout was checked before"
    document = check_document(job, job.layout)
    memory = document["memory"]
    return {
        "engine": job.profile.name,
        "version": job.profile.version,
        "kind": job.profile.kind,
        "label": document["label"],
        "legal": not document["violations"],
        "verdict": document["verdict"],
        "violations": document["violations"],
        "nearest_layouts": document["nearest_layouts"],
        "warnings": document["warnings"],
        "estimated_with": document["estimated_with"],
        "memory": memory and {"capacity": memory["capacity"], "interval": memory["interval"]},
        "time": document["time"],
        "absent": document["absent"],
    }


def _facts(job: Job, layout: LayoutSpec) -> dict[str, Any]:
    known = facts_of(model=job.model, training=job.training, topology=job.topology, layout=layout)
    return {**job.engine_facts, **known}


def _predicted(job: Job, layout: LayoutSpec) -> dict[str, Any]:
    """The keys of a check that rest on a prediction."""
    estimates, verdicts = estimate_candidates(job, Candidates.from_layouts([layout]))
    prediction = estimates.prediction(0)
    verdict = VERDICTS[verdicts[0]]
    capacity = job.topology.accelerator.memory_bytes
    useful = job.training.useful_tokens_per_step / job.training.tokens_per_step
    profile = estimating_profile(job.profile)
    changes = [] if verdict == "fits" else changes_to_fit(job, layout)[:MOST_CHANGES]
    missing = [] if verdict == "fits" else [what_is_needed(job, layout, estimates, 0)]
    placed = describe_groups(layout, job.topology, job.profile.rank_order, job.profile.expert_fold)
    return {
        "verdict": verdict,
        "estimated_with": f"{profile.name} {profile.version}",
        "memory": {
            "capacity": capacity,
            "headroom": job.headroom_fraction,
            "interval": prediction.memory_total.as_json(),
            "stages": [stage.as_json() for stage in estimates.ranks(0)],
        },
        "time": prediction.time.as_json(),
        "interval": {"step_time": prediction.step_time.as_json()},
        "tokens_per_s": prediction.tokens_per_s,
        "useful_tokens_per_s": useful * prediction.tokens_per_s,
        "binding": prediction.binding,
        "calibration": None if job.calibration is None else learned_document(learn(job)),
        "groups": [group.as_json() for group in placed],
        "changes": [fitting_change(change) for change in changes],
        "advice": [*missing, *map(str, changes)],
    }
