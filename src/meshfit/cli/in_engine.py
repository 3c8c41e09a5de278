"""``meshfit run --in-engine``: what it takes, and what it shows."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.output import print_json, stderr, stdout
from meshfit.job.read import read_job
from meshfit.report.measured.logged import logged_view

FAILED = 3

InEngine = Annotated[
    str | None,
    typer.Option(
        "--in-engine",
        metavar="ENGINE",
        help="Start the exported files of this engine (accelerate, torchtitan) here, and read its log.",
        show_default=False,
    ),
]
EnginePython = Annotated[
    Path | None,
    typer.Option(
        "--engine-python",
        metavar="FILE",
        help="Python of the environment that the engine is installed in (default: this one).",
        show_default=False,
    ),
]


def run_in(
    engine: str,
    job: Path,
    *,
    python: Path | None,
    layout: str | None,
    rank_order: str | None,
    calibration: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run one layout in an engine and show its log beside the prediction; fails where the run did."""
    from meshfit.funnel.sweep.in_engine import require_startable, run_in_engine

    require_startable(engine)
    read = read_job(
        job,
        layout=layout,
        engine=engine,
        rank_order=rank_order,
        calibration=calibration,
        to_run=False,
    )
    chosen = Path(sys.executable) if python is None else python.absolute()
    end = run_in_engine(read, python=chosen, out=out, console=stderr)
    if as_json:
        print_json(end.document)
    else:
        if end.document["log"] is not None:
            stdout.print(logged_view(end.document))
        stdout.print(f"\nrun      {end.folder}", highlight=False, markup=False)
    if end.outcome != "ok":
        stderr.print(f"{end.outcome}: {end.document['failure']}", markup=False, highlight=False)
        raise typer.Exit(FAILED)
