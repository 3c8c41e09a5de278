"""``meshfit plan``."""

from typing import Annotated

import typer

from meshfit.cli.jobs import JobPath
from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.funnel.plan_document import plan_document
from meshfit.funnel.planning import make_plan
from meshfit.job.read import read_job
from meshfit.report.tables import plan_view

NOTHING_FITS = 1


def plan(
    job: JobPath,
    top: Annotated[int, typer.Option(min=1, help="Candidates to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Rank every legal layout by prediction: memory, time by term, and why the rest is illegal."""
    made = make_plan(read_job(job, to_run=False))
    document = plan_document(made, top=top)
    if as_json:
        print_json(document)
    else:
        stdout.print(plan_view(document, top=top))
    if not len(made.fitting_order()):
        raise typer.Exit(NOTHING_FITS)
