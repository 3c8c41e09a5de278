"""``meshfit serve fit``."""

from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.jobs import JobPath
from meshfit.cli.output import AsJson, print_json, stderr, stdout
from meshfit.record.files import write_json_atomically
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.servers.commands import ServerKind

NONE_MEETS = 1


def fit(
    job: JobPath,
    *,
    server: Annotated[
        ServerKind,
        typer.Option(help="What each layout is started with, on this machine."),
    ] = "transformers",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Run folder (default: meshfit-runs/NAME-serve, resumed if there).",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the job's layouts on real servers; name the cheapest that meets the targets, or none."""
    from meshfit.report.serving.fit import serving_fit_document, serving_fit_view
    from meshfit.serve.fit.fit import serving_fit

    read = read_serving_job(job)
    folder = out or Path("meshfit-runs") / f"{read.name}-serve"
    end = serving_fit(
        read,
        server,
        folder,
        say=lambda line: stderr.print(line, markup=False, highlight=False, soft_wrap=True),
    )
    document = serving_fit_document(end.rows, end.choice, server=end.kind)
    write_json_atomically(folder / "fit.json", document)
    if as_json:
        print_json(document)
    else:
        stdout.print(serving_fit_view(document))
    if end.choice.winner is None:
        raise typer.Exit(NONE_MEETS)
