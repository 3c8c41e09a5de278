"""``meshfit validate``."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.output import AsJson, print_json, stderr, stdout
from meshfit.report.scores.collectives import collectives_view
from meshfit.report.scores.serving import serving_scores_view
from meshfit.report.scores.training import validation_view
from meshfit.validate.collectives.document import collectives_document
from meshfit.validate.collectives.predictions import predict_collectives
from meshfit.validate.collectives.rows import read_collective_rows
from meshfit.validate.document import missed_targets, validation_document
from meshfit.validate.error_scores import ErrorScore
from meshfit.validate.predictions import RowPrediction, predict_rows
from meshfit.validate.refit import leave_one_out
from meshfit.validate.rows import read_rows
from meshfit.validate.serving.document import serving_document
from meshfit.validate.serving.predictions import predict_serving
from meshfit.validate.serving.rows import read_serving_rows

TARGET_MISSED = 1

app = typer.Typer(help="Hold predictions against published measurements.", no_args_is_help=True)


@app.callback()
def _validate() -> None:
    """Hold predictions against published measurements."""


@app.command()
def training(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A table of training measurements (CSV).")
    ],
    with_targets: Annotated[
        bool,
        typer.Option("--targets", help="Hold the scores against the targets; exit 1 on a miss."),
    ] = False,
    leaves_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out",
            help="Fit the time model's constants without each family in turn (minutes).",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Errors of memory and step time, what fits, and the order of layouts, beside plain rules."""
    started = time.perf_counter()
    rows = read_rows(file)
    predictions = predict_rows(rows)
    left_out = _left_out(predictions) if leaves_out else None
    document = validation_document(
        str(file), rows, predictions, left_out=left_out, with_targets=with_targets
    )
    document["seconds"] = time.perf_counter() - started
    if as_json:
        print_json(document)
    else:
        stdout.print(validation_view(document))
    if missed_targets(document):
        raise typer.Exit(TARGET_MISSED)


@app.command()
def collectives(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A table of measured collectives (CSV).")
    ],
    with_targets: Annotated[
        bool,
        typer.Option("--targets", help="Hold the errors against the targets; exit 1 on a miss."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Errors of collectives by system, operation and size: of the formula, fitted without each
    system in turn (a minute), and of curves between the sizes that they have."""
    started = time.perf_counter()
    rows = read_collective_rows(file)
    predictions = predict_collectives(
        rows, lambda system: stderr.print(f"left out: {system}", style="dim")
    )
    document = collectives_document(str(file), predictions, with_targets=with_targets)
    document["seconds"] = time.perf_counter() - started
    if as_json:
        print_json(document)
    else:
        stdout.print(collectives_view(document))
    if any(not target["reached"] for target in document.get("targets", ())):
        raise typer.Exit(TARGET_MISSED)


@app.command()
def serving(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A table of measured servers (CSV).")
    ],
    with_targets: Annotated[
        bool,
        typer.Option("--targets", help="Hold the scores against the targets; exit 1 on a miss."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Errors of time to first token and per token by system, backend and model, in a closed loop, and
    what layouts chosen by prediction would have cost."""
    started = time.perf_counter()
    rows = read_serving_rows(file)
    document = serving_document(
        str(file),
        predict_serving(rows),
        of_any_release=predict_serving(rows, knows_release=False),
        with_targets=with_targets,
    )
    document["seconds"] = time.perf_counter() - started
    if as_json:
        print_json(document)
    else:
        stdout.print(serving_scores_view(document))
    if any(not target["reached"] for target in document.get("targets", ())):
        raise typer.Exit(TARGET_MISSED)


def _left_out(predictions: Sequence[RowPrediction]) -> dict[str, ErrorScore]:
    """The error of every family under constants fitted without it, told as it goes."""
    found = {}
    for family, score in leave_one_out(predictions):
        stderr.print(f"left out: {family}", style="dim")
        found[family] = score
    return found
