"""An engine's own file: that exact setting first, then better ones as changes of the file."""

import difflib
from dataclasses import replace
from typing import Any

from meshfit.engines.layout_options import can_write, changed_options
from meshfit.engines.syntax.edit import edited
from meshfit.errors import InputError
from meshfit.funnel.check.checking import check_document, search_near
from meshfit.funnel.space.planning import Plan, make_plan
from meshfit.job.engine_file import EngineJob
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.predict.verdict import FITS

MOST_ALTERNATIVES = 3
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
    """The best layouts of different meshes that fit with headroom and that the file can express, where they are faster
    or the file's own does not fit so."""
    if document["verdict"] is None or not given.file.is_rewritten:
        return []
    try:
        plan = make_plan(replace(given.job, search=search_near(given.job.search, layout)))
    except InputError:
        return []
    most = None
    if document["verdict"] == "fits":
        most = (1 - LEAST_GAIN) * document["interval"]["step_time"]["middle"]
    found: list[dict[str, Any]] = []
    meshes: set[tuple[int, ...]] = set()
    for index in plan.fitting_order():
        is_worth_it = most is None or plan.estimates.step_middle_s[index] <= most
        if len(found) == MOST_ALTERNATIVES or not is_worth_it:
            break
        other = plan.layout(index)
        mesh = tuple(getattr(other, axis) for axis in (*AXES, "ep"))
        if mesh in meshes or plan.verdicts[index] != FITS:
            continue
        if not can_write(given.form.write, other, given.job.training.global_batch_size):
            continue
        meshes.add(mesh)
        found.append(_alternative(given, layout, plan, int(index), document))
    return found


def _alternative(
    given: EngineJob, layout: LayoutSpec, plan: Plan, index: int, document: dict[str, Any]
) -> dict[str, Any]:
    other = plan.layout(index)
    prediction = plan.estimates.prediction(index)
    batch = given.job.training.global_batch_size
    options = changed_options(given.form.write, layout, other, batch)
    now = document["interval"]["step_time"]["middle"] if document["time"] else None
    return {
        "layout": other.as_json(),
        "label": other.label,
        "step_time": prediction.step_time.as_json(),
        "memory": prediction.memory_total.as_json(),
        "gain": None if now is None else 1 - prediction.step_time.middle / now,
        "options": options,
        "diff": _diff(given, options),
    }


def _diff(given: EngineJob, options: dict[str, Any]) -> list[str]:
    """Lines of a unified diff of the file; none for a kind of file that is not edited."""
    if given.form.style is None:
        return []
    new = edited(given.text, given.file.settings, options, given.form.style)
    return list(
        difflib.unified_diff(
            given.text.splitlines(), new.splitlines(), "given", "proposed", n=0, lineterm=""
        )
    )
