"""``meshfit check``."""

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
from meshfit.funnel.check.checking import EXIT_CODES, check_document, engine_documents
from meshfit.job.read import read_job
from meshfit.job.spec import Job
from meshfit.report.check import check_view


def check(
    job: JobPath,
    *,
    layout: LayoutText = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Show the ranks and hosts of every axis's groups.")
    ] = False,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="Ask this engine too (repeat, or `all`).",
            show_default=False,
        ),
    ] = None,
    rank_order: RankOrderText = None,
    assume: AssumeText = None,
    calibration: CalibrationFile = None,
    no_calibration: WithoutCalibration = False,
    as_json: AsJson = False,
) -> None:
    """One given layout: is it legal, does it fit, with what margin? All broken rules at once."""
    asked = calibration_asked(calibration, no_calibration)

    def read_for(engine: str | None) -> Job:
        return read_job(
            job,
            layout=layout,
            engine=engine,
            rank_order=rank_order,
            calibration=asked,
            assume=assume,
            to_run=False,
        )

    read = read_for(None)
    if read.layout is None:
        raise InputError("no layout to check: give `layout:` in the job or --layout tp=4,pp=2")
    document = check_document(read, read.layout)
    others = [*read.other_engines, *(engine or [])]
    if others:
        document["engines"] = engine_documents(read_for, [read.profile.name, *others])
    if as_json:
        print_json(document)
    else:
        stdout.print(check_view(document, groups=groups))
    raise typer.Exit(EXIT_CODES[document["verdict"]])
