"""The arguments that commands on a job share."""

from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.output import stderr
from meshfit.errors import InputError
from meshfit.files import is_file
from meshfit.job.read import NO_CALIBRATION

JobPath = Annotated[
    Path, typer.Argument(metavar="JOB", help="A job.yaml, or a folder that holds one.")
]
LayoutText = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="KEY=X,...",
        help="Overrides keys of the job's layout, e.g. tp=4,pp=2.",
        show_default=False,
    ),
]
RankOrderText = Annotated[
    str | None,
    typer.Option(
        "--rank-order",
        metavar="AXIS,...",
        help="Axes that ranks are laid over, the outermost first, e.g. tp,dp_replicate (default: "
        "the job's, else the engine's own).",
        show_default=False,
    ),
]
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Run folder (default: meshfit-runs/NAME-HASH, resumed if there).",
        show_default=False,
    ),
]
AssumeText = Annotated[
    str | None,
    typer.Option(
        "--assume",
        metavar="KEY=X,...",
        help="What no one can know before: expert_imbalance, straggler, contention, "
        "length_imbalance, e.g. straggler=1.05,contention=2.",
        show_default=False,
    ),
]
CalibrationFile = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Runs to learn from, as `meshfit fit` remembers them (default: the job's file, else "
        "calibration.jsonl beside your catalogue).",
        show_default=False,
    ),
]
WithoutCalibration = Annotated[
    bool, typer.Option("--no-calibration", help="Predict by formulas alone; remember nothing.")
]


def calibration_asked(file: str | None, without: bool, *, remembers: bool = False) -> str | None:
    """What ``read_job`` takes of the two options.

    Args:
        remembers: the command runs layouts and remembers them, so that a file that is not there is
            one that it begins.

    Raises:
        InputError: both are given, or the file is not there for a command that only reads it.
    """
    if without and file is not None:
        raise InputError("--calibration FILE and --no-calibration exclude each other; give one")
    if without or file is None or file == NO_CALIBRATION:
        return NO_CALIBRATION if without else file
    path = Path(file).expanduser()
    if path.is_dir():
        raise InputError(f"--calibration {file} is a folder; give the file in it")
    if not is_file(path):
        if not remembers:
            raise InputError(
                f"--calibration {file} is not there; `meshfit fit` and `run` write such a file, and "
                f"--no-calibration predicts by formulas alone"
            )
        stderr.print(
            f"--calibration {file} is not there yet: predictions are by formula, and what runs is "
            f"remembered in it",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    return file
