"""What ``meshfit check`` takes beside an engine's own file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from meshfit.cli.output import print_json, stdout
from meshfit.engines.recognise import KNOWN
from meshfit.errors import InputError
from meshfit.files import is_file
from meshfit.funnel.check.checking import EXIT_CODES
from meshfit.funnel.check.engine_file import engine_file_document
from meshfit.funnel.check.server_file import server_file_document
from meshfit.job.engine_file import Added, job_of_engine_file
from meshfit.report.predicted.engine_file import engine_file_view
from meshfit.report.serving.server_file import server_file_view
from meshfit.serve.job.engine_file import served_file

_PANEL = "For a file of an engine, what it does not say"


def _said(option: str, help_text: str, **more: Any) -> Any:
    """An option that says what a file leaves out."""
    return typer.Option(option, help=help_text, rich_help_panel=_PANEL, show_default=False, **more)


Gpus = Annotated[int | None, _said("--gpus", "Accelerators in all.", min=1)]
Accelerator = Annotated[
    str | None, _said("--accelerator", "Of the catalogue, e.g. H100-SXM.", metavar="NAME")
]
Cluster = Annotated[
    str | None,
    _said("--cluster", "e.g. '4x8 H100-SXM' or cluster.yaml, in place of both.", metavar="TEXT"),
]
ModelName = Annotated[
    str | None, _said("--model", "Of the catalogue, or a config.json.", metavar="NAME")
]
SequenceLength = Annotated[int | None, _said("--sequence-length", "Tokens.", min=1)]
GlobalBatch = Annotated[
    str | None, _said("--global-batch", "e.g. '128 sequences' or '4M tokens'.", metavar="TEXT")
]
MicroBatch = Annotated[int | None, _said("--micro-batch-size", "Sequences of one forward.", min=1)]


def refuse_for_a_job(path: Path | None, added: Added) -> None:
    """Does nothing where a person added nothing to the job at ``path``.

    Raises:
        InputError: they did, though a job says it all, or nothing is given that they could add to.
    """
    named = ("gpus", "accelerator", "cluster", "model", "sequence_length", "global_batch",
             "micro_batch_size")  # fmt: skip
    given = [name for name in named if getattr(added, name) is not None]
    if not given:
        return
    words = f"--{given[0].replace('_', '-')} is for a file of an engine"
    if path is None:
        raise InputError(f"{words}, which is not given")
    if is_file(path):
        raise InputError(
            f"{words}, and {path} is none that is known ({KNOWN}); a job says that itself"
        )
    raise InputError(f"{words}; the job in {path} says that itself")


def check_engine_file(path: Path, added: Added, *, as_json: bool) -> None:
    """Print what there is to say of an engine's file; ends the command."""
    document = engine_file_document(job_of_engine_file(path, added))
    if as_json:
        print_json(document)
    else:
        stdout.print(engine_file_view(document))
    raise typer.Exit(EXIT_CODES[document["verdict"]])


def check_server_file(path: Path, added: Added, *, as_json: bool) -> None:
    """Print what there is to say of a file that starts a server; ends the command."""
    document = server_file_document(served_file(path, added))
    if as_json:
        print_json(document)
    else:
        stdout.print(server_file_view(document))
    raise typer.Exit(EXIT_CODES[document["verdict"]])
