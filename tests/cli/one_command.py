"""One command of the program, run in this process."""

import io
from collections.abc import Callable

import pytest
import typer
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner


def run(app: typer.Typer, *arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def printing(
    app: typer.Typer, module: object, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """A function that runs the command with arguments and gives what ``module`` prints for a person, on
    a terminal of 120 columns."""

    def show(*arguments: str) -> str:
        console = Console(file=io.StringIO(), width=120)
        monkeypatch.setattr(module, "stdout", console)
        run(app, *arguments)
        return console.file.getvalue()

    return show
