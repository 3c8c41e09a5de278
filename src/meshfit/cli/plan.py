"""``meshfit plan``."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.jobs import (
    AssumeText,
    CalibrationFile,
    JobPath,
    LayoutText,
    RankOrderText,
    WithoutCalibration,
    calibration_asked,
)
from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.errors import InputError
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.explain.explaining import explain_document
from meshfit.funnel.plan.placements import placements_document
from meshfit.funnel.plan.plan_document import plan_document, unranked_document
from meshfit.funnel.plan.sensitivity import sensitivity_document
from meshfit.funnel.plan.tier3 import dry_run_rows
from meshfit.funnel.plan.timeline import write_timeline
from meshfit.funnel.space.planning import Plan, legal_space, make_plan
from meshfit.job.read import read_job
from meshfit.job.spec import Job
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.coverage import why_not_covered
from meshfit.report.documents import PlanDocument
from meshfit.report.dry_run import dry_run_table
from meshfit.report.explain import explain_view
from meshfit.report.placements import placements_view
from meshfit.report.plan import plan_view
from meshfit.report.sensitivity import sensitivity_view

NOTHING_FITS = 1
PLACED_LAYOUTS = 3
"""So many of the best are looked at by ``--placements``."""


def plan(
    job: JobPath,
    *,
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="Meshes to show, or layouts with --all.")
    ] = 20,
    every: Annotated[
        bool,
        typer.Option("--all", help="List layouts one by one, not the best one of each mesh."),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Show what each axis of the recommended layout (or of --layout) does."
        ),
    ] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the simulated step of the recommended layout (or of --layout) as a trace for "
            "ui.perfetto.dev.",
        ),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="Show how step time and order of the leaders change with what one can only assume.",
        ),
    ] = False,
    placements: Annotated[
        bool,
        typer.Option(
            "--placements",
            help="Show in which domains the axes of the best candidates (or of --layout) could sit, "
            "and what each placement costs.",
        ),
    ] = False,
    dry_run: Annotated[
        int,
        typer.Option(
            "--dry-run",
            metavar="N",
            min=0,
            help="Run the program of the best N meshes on fake tensors: their memory to the byte.",
            show_default=False,
        ),
    ] = 0,
    layout: LayoutText = None,
    rank_order: RankOrderText = None,
    assume: AssumeText = None,
    calibration: CalibrationFile = None,
    no_calibration: WithoutCalibration = False,
    as_json: AsJson = False,
) -> None:
    """Rank every legal layout by prediction: memory, time by term, and why the rest is illegal."""
    if layout is not None and not explain and not placements and timeline is None:
        raise InputError(
            "--layout says which layout to --explain, whose --placements to show, or whose --timeline "
            "to write; a plan ranks all of them"
        )
    asked = calibration_asked(calibration, no_calibration)
    read = read_job(
        job,
        layout=layout,
        rank_order=rank_order,
        calibration=asked,
        assume=assume,
        to_run=False,
    )
    why = why_not_covered(read.model)
    space = _ranked(read, top) if why is None else _counted(read, why)
    document = space.document
    if explain:
        document["explain"] = explain_document(read, _looked_at(read, layout, space))
    if placements:
        document["placements"] = [
            placements_document(read, one) for one in _placed(read, layout, space, why)
        ]
    if sensitivity:
        document["sensitivity"] = sensitivity_document(_ranked_plan(space, why))
    if dry_run:
        rows, seconds = dry_run_rows(_ranked_plan(space, why), dry_run)
        document["dry_run"] = rows
        document["seconds_by_tier"]["dry_run"] = seconds
        document["seconds"] += seconds
    if timeline is not None:
        write_timeline(read, _looked_at(read, layout, space), timeline)
    if as_json:
        print_json(document)
    else:
        _show(document, top=top, every=every)
    if not space.fits:
        raise typer.Exit(NOTHING_FITS)


def _show(document: PlanDocument, *, top: int, every: bool) -> None:
    """The plan, and below it what else was asked for."""
    stdout.print(plan_view(document, top=top, every=every))
    if "explain" in document:
        stdout.print(explain_view(document["explain"]))
    for placed in document.get("placements", []):
        stdout.print(placements_view(placed))
    if "dry_run" in document:
        stdout.print(dry_run_table(document["dry_run"]))
    if "sensitivity" in document:
        stdout.print(sensitivity_view(document["sensitivity"]))


@dataclass(frozen=True, kw_only=True)
class _Space:
    """What is shown of a job's space; ``some`` is one of its layouts, where there is a plan
    the recommended one."""

    document: PlanDocument
    some: LayoutSpec
    plan: Plan | None = None
    fits: bool = True


def _ranked(job: Job, top: int) -> _Space:
    made = make_plan(job)
    document = plan_document(made, top=top)
    recommended = document["recommended"]
    place = 0 if recommended is None else recommended["rank"] - 1
    return _Space(
        document=document,
        some=made.layout(int(made.order[place])),
        plan=made,
        fits=len(made.fitting_order()) > 0,
    )


def _counted(job: Job, why: str) -> _Space:
    """What rules alone say of the space, for a model that cannot be estimated."""
    started = time.perf_counter()
    space = legal_space(job)
    seconds = time.perf_counter() - started
    return _Space(
        document=unranked_document(job, space, seconds=seconds, why=why),
        some=space.candidates.layout(0),
    )


def _placed(job: Job, layout: str | None, space: _Space, why: str | None) -> list[LayoutSpec]:
    """The layouts whose placements are shown."""
    if layout is not None:
        return [_looked_at(job, layout, space)]
    made = _ranked_plan(space, why)
    return [made.layout(int(index)) for index in made.order[:PLACED_LAYOUTS]]


def _ranked_plan(space: _Space, why: str | None) -> Plan:
    if space.plan is None:
        raise InputError(
            f"--sensitivity, --placements and --dry-run take ranked layouts, and none are ranked: {why}"
        )
    return space.plan


def _looked_at(job: Job, layout: str | None, space: _Space) -> LayoutSpec:
    """The layout asked for; else the recommended one, or where none is ranked the job's own."""
    if job.layout is not None and (layout is not None or space.plan is None):
        require_legal(job, job.layout)
        return job.layout
    if space.plan is None:
        raise InputError(
            f"--explain and --timeline take the layout from --layout or from the job, as {job.model.name} is not "
            f"ranked; one that is legal: --layout {space.some.label}"
        )
    return space.some
