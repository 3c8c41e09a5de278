"""The command line: one subcommand a stage. Exit codes are those of ``meshfit.errors``."""

import sys
from typing import NoReturn

import typer
from rich.markup import escape

from meshfit import __version__
from meshfit.cli import (
    check,
    compare,
    dryrun,
    export,
    fit,
    init,
    lab,
    model,
    plan,
    probe,
    report,
    scale,
    serve,
    topo,
    train,
    validate,
)
from meshfit.cli.output import stderr
from meshfit.errors import MeshfitError, RunError
from meshfit.interrupt import terminated_as_interrupted

INTERRUPTED = 130

app = typer.Typer(
    name="meshfit",
    help="Choose a parallel layout for training a large language model: plan, run, measure, prove.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(fit.fit)
app.command()(fit.run)
app.command()(train.train)
app.command()(scale.scale)
app.command()(plan.plan)
app.command()(check.check)
app.command()(compare.compare)
app.command()(dryrun.dryrun)
app.command()(model.model)
app.command()(topo.topo)
app.command()(topo.catalogue)
app.command()(probe.probe)
app.command()(report.report)
app.command()(export.export)
app.command()(init.init)
app.add_typer(validate.app, name="validate")
app.add_typer(serve.app, name="serve")
app.add_typer(lab.app, name="lab")


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Runs the command line; a person's mistake is one message, never a traceback."""
    try:
        with terminated_as_interrupted():
            app(standalone_mode=True)
    except MeshfitError as error:
        _end(str(error), error.exit_code)
    except OSError as error:  # no space left, no permission: of the machine, not of the program
        _end(f"{error.filename or 'the system'}: {error.strerror or error}", RunError.exit_code)
    except KeyboardInterrupt:
        _end_interrupted()
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer's own way to pass on Ctrl-C
            _end_interrupted()
        raise
    sys.exit(0)


def _end(message: str, exit_code: int) -> NoReturn:
    stderr.print(f"[bold red]error:[/bold red] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(exit_code)


def _end_interrupted() -> NoReturn:
    stderr.print("interrupted; what had finished is kept, the same command resumes")
    sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
