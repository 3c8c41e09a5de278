"""``meshfit train``."""

from typing import Annotated

import typer
from rich.markup import escape

from meshfit.cli.fit import FAILED
from meshfit.cli.jobs import JobPath, LayoutText, OutFolder, RankOrderText
from meshfit.cli.output import AsJson, print_json, stderr, stdout
from meshfit.job.read import NO_CALIBRATION, read_job


def train(
    job: JobPath,
    *,
    checkpoint_every: Annotated[
        int,
        typer.Option(
            "--checkpoint-every", min=1, metavar="STEPS", help="Steps between two checkpoints."
        ),
    ],
    layout: LayoutText = None,
    rank_order: RankOrderText = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the last good checkpoint, under any layout."),
    ] = False,
    asynchronous: Annotated[
        bool, typer.Option("--async", help="Train on while a checkpoint is written.")
    ] = False,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts", min=0, metavar="N", help="How often to start again after a failure."
        ),
    ] = 0,
    out: OutFolder = None,
    as_json: AsJson = False,
) -> None:
    """Train one layout with checkpoints; resume it under the same layout or another."""
    from meshfit.funnel.sweep.train import TrainOptions
    from meshfit.funnel.sweep.train import train as run_train
    from meshfit.report.measured.training import train_view

    read = read_job(job, layout=layout, rank_order=rank_order, calibration=NO_CALIBRATION)
    options = TrainOptions(
        every=checkpoint_every, asynchronous=asynchronous, resume=resume, restarts=restarts
    )
    end = run_train(read, options, out=out, console=stderr)
    if as_json:
        print_json(end.document)
    else:
        stdout.print(train_view(end.document))
        stdout.print(f"folder   {escape(str(end.folder))}", highlight=False)
    if end.document["outcome"] != "ok":
        raise typer.Exit(FAILED)
