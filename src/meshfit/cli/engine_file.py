"""What ``meshfit check`` takes beside an engine's own file."""

from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.output import print_json, stdout
from meshfit.errors import InputError
from meshfit.funnel.check.checking import EXIT_CODES
from meshfit.funnel.check.engine_file import engine_file_document
from meshfit.job.engine_file import Added, job_of_engine_file
from meshfit.report.engine_file import engine_file_view

_PANEL = "For a file of an engine, what it does not say"

Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus", min=1, help="Accelerators in all.", rich_help_panel=_PANEL, show_default=False
    ),
]
Accelerator = Annotated[
    str | None,
    typer.Option(
        "--accelerator",
        metavar="NAME",
        help="Of the catalogue, e.g. H100-SXM.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="TEXT",
        help="e.g. '4x8 H100-SXM' or cluster.yaml, in place of both.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Of the catalogue, or a config.json.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
SequenceLength = Annotated[
    int | None,
    typer.Option(
        "--sequence-length", min=1, help="Tokens.", rich_help_panel=_PANEL, show_default=False
    ),
]
GlobalBatch = Annotated[
    str | None,
    typer.Option(
        "--global-batch",
        metavar="TEXT",
        help="e.g. '128 sequences' or '4M tokens'.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
MicroBatch = Annotated[
    int | None,
    typer.Option(
        "--micro-batch-size",
        min=1,
        help="Sequences of one forward.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]


def refuse_for_a_job(added: Added) -> None:
    """Does nothing where a person added nothing.

    Raises:
        InputError: they did, though the file is a job, which says it all.
    """
    named = ("gpus", "accelerator", "cluster", "model", "sequence_length", "global_batch",
             "micro_batch_size")  # fmt: skip
    given = [name for name in named if getattr(added, name) is not None]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise InputError(f"{option} is for a file of an engine; a job says that itself")


def check_engine_file(path: Path, added: Added, *, as_json: bool) -> None:
    """Print what there is to say of an engine's file; ends the command."""
    document = engine_file_document(job_of_engine_file(path, added))
    if as_json:
        print_json(document)
    else:
        stdout.print(engine_file_view(document))
    raise typer.Exit(EXIT_CODES[document["verdict"]])
