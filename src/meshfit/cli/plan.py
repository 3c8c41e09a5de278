"""``meshfit plan``."""

import time
from typing import Annotated

import typer

from meshfit.cli.jobs import JobPath, LayoutText
from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.errors import InputError
from meshfit.funnel.checking import require_legal
from meshfit.funnel.explaining import explain_document
from meshfit.funnel.plan_document import plan_document, unranked_document
from meshfit.funnel.planning import Plan, legal_space, make_plan
from meshfit.job.read import read_job
from meshfit.job.spec import Job
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.coverage import why_not_covered
from meshfit.report.explain import explain_view
from meshfit.report.tables import plan_view

NOTHING_FITS = 1


def plan(
    job: JobPath,
    top: Annotated[int, typer.Option(min=1, help="Candidates to show.")] = 20,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Show what each axis of the best candidate (or of --layout) does."
        ),
    ] = False,
    layout: LayoutText = None,
    as_json: AsJson = False,
) -> None:
    """Rank every legal layout by prediction: memory, time by term, and why the rest is illegal."""
    if layout is not None and not explain:
        raise InputError("--layout says which layout to --explain; a plan ranks all of them")
    read = read_job(job, layout=layout, to_run=False)
    why = why_not_covered(read.model)
    if why is not None and explain:
        raise InputError(f"--explain needs an estimate: {why}")
    if why is not None:
        _show_unranked(read, why, as_json=as_json)
        return
    made = make_plan(read)
    document = plan_document(made, top=top)
    if explain:
        document["explain"] = explain_document(read, _explained(made, layout))
    if as_json:
        print_json(document)
    else:
        stdout.print(plan_view(document, top=top))
        if explain:
            stdout.print(explain_view(document["explain"]))
    if not len(made.fitting_order()):
        raise typer.Exit(NOTHING_FITS)


def _show_unranked(job: Job, why: str, *, as_json: bool) -> None:
    """What rules alone say of the space, for a model that cannot be estimated."""
    started = time.perf_counter()
    space = legal_space(job)
    seconds = time.perf_counter() - started
    document = unranked_document(job, space, seconds=seconds, why=why)
    if as_json:
        print_json(document)
    else:
        stdout.print(plan_view(document))


def _explained(made: Plan, layout: str | None) -> LayoutSpec:
    """The layout asked for, else the best candidate."""
    asked = made.job.layout
    if layout is None or asked is None:
        return made.layout(int(made.order[0]))
    require_legal(made.job, asked)
    return asked
