"""The command line: one subcommand a stage. Exit codes are those of ``meshfit.errors``."""

import sys
from contextlib import suppress
from typing import NoReturn

import typer
from rich.markup import escape
from typer.exceptions import TyperException

from meshfit import __version__
from meshfit.cli import (
    balance,
    catalogue,
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
from meshfit.cli.output import print_json, stderr
from meshfit.cli.usage import usage_message
from meshfit.errors import InputError, MeshfitError, RunError
from meshfit.interrupt import terminated_as_interrupted

INTERRUPTED = 130

app = typer.Typer(
    name="meshfit",
    help="Choose a parallel layout for training a large language model: plan, run, measure, prove.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
# In the order in which a job goes through them.
app.command()(init.init)
app.command()(catalogue.catalogue)
app.command()(model.model)
app.command()(topo.topo)
app.command()(probe.probe)
app.command()(check.check)
app.command()(plan.plan)
app.command()(dryrun.dryrun)
app.command()(balance.balance)
app.command()(fit.run)
app.command()(fit.fit)
app.command()(scale.scale)
app.command()(compare.compare)
app.command()(report.report)
app.command()(export.export)
app.command()(train.train)
app.add_typer(serve.app, name="serve")
app.add_typer(lab.app, name="lab")
app.add_typer(validate.app, name="validate")


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
            code = app(prog_name="meshfit", standalone_mode=False)
    except MeshfitError as error:
        _fail(error)
    except TyperException as error:
        if not sys.argv[1:] or not error.format_message():  # help was shown: nothing was asked for
            sys.exit(InputError.exit_code)
        _fail(InputError(usage_message(error)))
    except OSError as error:  # no space left, no permission: of the machine, not of the program
        _fail(RunError(f"{error.filename or 'the system'}: {error.strerror or error}"))
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:  # also typer's own way to pass on Ctrl-C
        stderr.print("interrupted; what had finished is kept, the same command resumes")
    sys.exit(code or 0)


def _fail(error: MeshfitError) -> NoReturn:
    """Ends the command with one line on stderr and, where JSON is asked for, a document on stdout."""
    text = f"[bold red]error:[/bold red] {escape(str(error))}"
    stderr.print(text, highlight=False, soft_wrap=True)
    if "--json" in sys.argv[1:]:
        with suppress(OSError):  # stdout itself may be what failed
            print_json({"error": {"kind": error.kind, "message": str(error)}})
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
