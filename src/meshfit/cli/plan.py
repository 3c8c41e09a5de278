"""``meshfit plan``."""

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
from meshfit.funnel.plan.planned import PlanRequest, nothing_fits, planned_document
from meshfit.job.read import read_job
from meshfit.report.documents.plan import PlanDocument
from meshfit.report.predicted.dry_run import dry_run_table
from meshfit.report.predicted.explain import explain_view
from meshfit.report.predicted.placements import placements_view
from meshfit.report.predicted.plan import plan_view
from meshfit.report.predicted.sensitivity import sensitivity_view

NOTHING_FITS = 1


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
    read = read_job(
        job,
        layout=layout,
        rank_order=rank_order,
        calibration=calibration_asked(calibration, no_calibration),
        assume=assume,
        to_run=False,
    )
    asked = PlanRequest(
        top=top,
        of_given_layout=layout is not None,
        explain=explain,
        placements=placements,
        sensitivity=sensitivity,
        dry_runs=dry_run,
        timeline=timeline,
    )
    document = planned_document(read, asked)
    if as_json:
        print_json(document)
    else:
        _show(document, top=top, every=every)
    if nothing_fits(document):
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
