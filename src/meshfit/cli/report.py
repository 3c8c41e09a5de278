"""``meshfit report``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from meshfit.cli.output import AsJson, print_paths
from meshfit.errors import InputError
from meshfit.funnel.sweep.folder import RunFolder


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder of `meshfit fit`.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write (default: DIR/report.html).",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the page of a finished run again, from its records."""
    from jinja2 import UndefinedError

    from meshfit.report.page.page import render_page

    run = RunFolder(folder)
    content = _read_document(run.document, folder)
    try:
        page = render_page(content)
    except (LookupError, TypeError, ValueError, AttributeError, UndefinedError) as error:
        raise InputError(
            f"{run.document} is no whole document of `meshfit fit` "
            f"({type(error).__name__}: {error}); the same fit again writes it anew"
        ) from error
    target = out or run.page
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}") from None
    print_paths([target], as_json=as_json)


def _read_document(path: Path, folder: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise InputError(
            f"{path} is not there: {folder} is no run folder of a finished `meshfit fit`"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a UTF-8 text file (byte {error.start})") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
