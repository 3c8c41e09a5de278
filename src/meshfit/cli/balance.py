"""``meshfit balance``."""

import typer
from rich.markup import escape

from meshfit.cli.jobs import JobPath, LayoutText, OutFolder
from meshfit.cli.output import AsJson, print_json, stderr, stdout
from meshfit.job.read import NO_CALIBRATION, read_job

NOTHING_FITS = 1


def balance(
    job: JobPath,
    *,
    layout: LayoutText = None,
    out: OutFolder = None,
    as_json: AsJson = False,
) -> None:
    """Measure what each layer takes here, and spread layers over pipeline stages by it.

    One process, no pipeline. Exit code 1 where no split fits the memory."""
    from meshfit.funnel.sweep.balance import balance as measured_balance
    from meshfit.report.measured.balance import balance_view

    read = read_job(job, layout=layout, calibration=NO_CALIBRATION)
    end = measured_balance(read, out=out, console=stderr)
    if as_json:
        print_json(end.document)
    else:
        stdout.print(balance_view(end.document))
        stdout.print(f"folder   {escape(str(end.folder))}", highlight=False)
    if end.document["absent"]:
        raise typer.Exit(NOTHING_FITS)
