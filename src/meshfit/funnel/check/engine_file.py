"""An engine's own file: that exact setting first, then better ones as changes of the file."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from meshfit.engines.layout_options import Options, can_write, changed_options
from meshfit.engines.syntax.edit import says
from meshfit.errors import InputError
from meshfit.funnel.check.checking import broken_rules, check_document, search_near
from meshfit.funnel.space.planning import Plan, make_plan
from meshfit.job.engine_file import EngineJob
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.predict.verdict import FITS

MOST_ALTERNATIVES = 3
MOST_LOOKED_AT = 1000
"""Best layouts of a plan that are tried, of which a file may be able to say few."""
LEAST_GAIN = 0.02
"""Share by which a step must be shorter for another layout to be worth a change."""


def engine_file_document(given: EngineJob) -> dict[str, Any]:
    """What ``check FILE --json`` prints: as for a job, and of the file itself

    ``file`` (``engine``, ``version``, ``form``), ``unknown_options[]`` (``option``, ``line``,
    ``nearest``, ``message``), which make the verdict ``invalid``, and ``alternatives[]`` (``layout``,
    ``step_time``, ``memory``, ``gain``, ``options``, ``diff``).
    """
    job, layout = given.job, given.job.layout
    assert layout is not None, "a file's layout is always made"
    document = check_document(job, layout)
    unknown = [
        {"option": one.name, "line": one.line, "nearest": one.nearest, "message": one.message}
        for one in given.file.unknown
    ]
    return document | {
        "verdict": "invalid" if unknown else document["verdict"],
        "file": {
            "engine": job.profile.name,
            "version": job.profile.version,
            "form": given.file.form,
        },
        "unknown_options": unknown,
        "alternatives": _alternatives(given, layout, document),
    }


def _alternatives(
    given: EngineJob, layout: LayoutSpec, document: dict[str, Any]
) -> list[dict[str, Any]]:
    """The best layouts of different meshes that fit with headroom and that the file can express, where
    they are faster or the file's own does not fit so."""
    batch = given.job.training.global_batch_size
    can_say = given.file.is_rewritten and can_write(given.form.write, layout, batch)
    if document["verdict"] is None or not can_say:
        return []
    try:
        plan = make_plan(replace(given.job, search=search_near(given.job.search, layout)))
    except InputError:
        return []
    longest = np.inf
    if document["verdict"] == "fits":
        longest = (1 - LEAST_GAIN) * document["interval"]["step_time"]["middle"]
    proposals = islice(_proposals(given, layout, plan, longest), MOST_ALTERNATIVES)
    return [_alternative(plan, proposal, document) for proposal in proposals]


@dataclass(frozen=True, kw_only=True)
class _Proposal:
    """Row ``index`` of a plan: the options to change, and lines of a unified diff of the file (none
    for a kind of file that is not edited)."""

    index: int
    options: Options
    diff: tuple[str, ...] = ()


def _proposals(
    given: EngineJob, layout: LayoutSpec, plan: Plan, longest: float
) -> Iterator[_Proposal]:
    """The best layout of each mesh that fits with headroom, takes no longer, and that the engine takes
    as the file would say it."""
    meshes: set[tuple[int, ...]] = set()
    for index in map(int, plan.fitting_order()[:MOST_LOOKED_AT]):
        other = plan.layout(index)
        mesh = tuple(getattr(other, axis) for axis in (*AXES, "ep"))
        if plan.estimates.step_middle_s[index] > longest:
            return
        if mesh in meshes or plan.verdicts[index] != FITS:
            continue
        proposal = _proposal(given, layout, other, index)
        if proposal is not None:
            meshes.add(mesh)
            yield proposal


def _proposal(
    given: EngineJob, layout: LayoutSpec, other: LayoutSpec, index: int
) -> _Proposal | None:
    """None where the file cannot say ``other``, or the engine refuses what it then says: what the file
    sets beside the layout stays as it is."""
    form, batch = given.form, given.job.training.global_batch_size
    if not can_write(form.write, other, batch):
        return None
    options = changed_options(form.write, layout, other, batch)
    if form.edit is None:
        return _Proposal(index=index, options=options)
    text = form.edit(given.text, given.file.settings, options)
    try:
        read = form.read(text, other.world_size)
    except InputError:
        return None
    if not says(given.file.settings, read.settings, options):  # written in an uncommon way
        return _Proposal(index=index, options=options)
    if broken_rules(replace(given.job, engine_facts=read.facts), other):
        return None
    lines = difflib.unified_diff(
        given.text.splitlines(), text.splitlines(), "given", "proposed", n=0, lineterm=""
    )
    return _Proposal(index=index, options=options, diff=tuple(lines))


def _alternative(plan: Plan, proposal: _Proposal, document: dict[str, Any]) -> dict[str, Any]:
    other = plan.layout(proposal.index)
    prediction = plan.estimates.prediction(proposal.index)
    now = document["interval"]["step_time"]["middle"] if document["time"] else None
    return {
        "layout": other.as_json(),
        "label": other.label,
        "step_time": prediction.step_time.as_json(),
        "memory": prediction.memory_total.as_json(),
        "gain": None if now is None else 1 - prediction.step_time.middle / now,
        "options": proposal.options,
        "diff": list(proposal.diff),
    }
