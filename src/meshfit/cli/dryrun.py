"""``meshfit dryrun``."""

from typing import Annotated

import typer

from meshfit.cli.jobs import JobPath, LayoutText, RankOrderText
from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.errors import InputError
from meshfit.job.read import read_job

DOES_NOT_FIT = 1


def dryrun(
    job: JobPath,
    *,
    layout: LayoutText = None,
    rank_order: RankOrderText = None,
    rank: Annotated[
        int, typer.Option(min=0, metavar="RANK", help="The one whose program is run.")
    ] = 0,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Run every layer and micro-batch instead of repeating those that are alike.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run one rank's real program on fake tensors: peak memory, every collective, FLOPs."""
    from meshfit.funnel.check.dry_run import dry_run_document
    from meshfit.report.predicted.dry_run import dry_run_view

    read = read_job(job, layout=layout, rank_order=rank_order)
    if read.layout is None:
        raise InputError("no layout to run: give `layout:` in the job or --layout tp=4,pp=2")
    document = dry_run_document(read, read.layout, rank=rank, whole=whole)
    if as_json:
        print_json(document)
    else:
        stdout.print(dry_run_view(document))
    if document["memory"].get("out_of_memory"):
        raise typer.Exit(DOES_NOT_FIT)
