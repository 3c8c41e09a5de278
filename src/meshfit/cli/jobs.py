"""The arguments that commands on a job share."""

from pathlib import Path
from typing import Annotated

import typer

JobPath = Annotated[
    Path, typer.Argument(metavar="JOB", help="A job.yaml, or a folder that holds one.")
]
LayoutText = Annotated[
    str | None,
    typer.Option("--layout", help="Overrides keys of the job's layout, e.g. tp=4,pp=2."),
]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", help="Run folder (default: meshfit-runs/NAME-HASH, resumed if there)."),
]
