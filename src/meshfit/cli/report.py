"""``meshfit report``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.output import stdout
from meshfit.errors import InputError
from meshfit.funnel.folder import RunFolder


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder of `meshfit fit`.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write (default: DIR/report.html).")
    ] = None,
) -> None:
    """Write the page of a finished run again, from its records."""
    from meshfit.report.page import render_page

    document = RunFolder(folder).document
    try:
        text = document.read_text(encoding="utf-8")
    except OSError:
        raise InputError(
            f"{document} is not there: {folder} is no run folder of a finished `meshfit fit`"
        ) from None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InputError(f"{document} is not JSON: {error}") from None
    target = out or RunFolder(folder).page
    target.write_text(render_page(content), encoding="utf-8")
    stdout.print(str(target), highlight=False, soft_wrap=True)
