"""``meshfit validate``."""

import time
from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.report.validation import validation_view
from meshfit.validate.document import missed_targets, validation_document
from meshfit.validate.predictions import predict_rows
from meshfit.validate.rows import read_rows

TARGET_MISSED = 1

app = typer.Typer(help="Hold predictions against published measurements.", no_args_is_help=True)


@app.callback()
def _validate() -> None:
    """Hold predictions against published measurements."""


@app.command()
def training(
    file: Annotated[Path, typer.Argument(help="A table of training measurements (CSV).")],
    with_targets: Annotated[
        bool,
        typer.Option("--targets", help="Hold the scores against the targets; exit 1 on a miss."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Errors of memory and step time, what fits, and the order of layouts, beside plain rules."""
    started = time.perf_counter()
    rows = read_rows(file)
    predictions = predict_rows(rows)
    document = validation_document(str(file), rows, predictions, with_targets=with_targets)
    document["seconds"] = time.perf_counter() - started
    if as_json:
        print_json(document)
    else:
        stdout.print(validation_view(document))
    if missed_targets(document):
        raise typer.Exit(TARGET_MISSED)
