"""How commands speak: one document or tables on stdout, everything else on stderr."""

import io
import json
import math
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

WIDTH_OF_FILES = 140
"""Columns of a table that goes into a pipe or a file, where no terminal says how many there are."""


def _console(*, stderr: bool) -> Console:
    """A console on today's stream (not that of import time), wide enough where it is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    if stream is None:  # closed by whoever started us
        return Console(file=io.StringIO())
    if isinstance(stream, io.TextIOWrapper):  # a stream of few characters shows a frame as ?
        stream.reconfigure(errors="replace")
    default = None if stream.isatty() else WIDTH_OF_FILES
    return Console(stderr=stderr, width=_asked_width() or default)


def _asked_width() -> int | None:
    """What COLUMNS asks for, None where it holds no number of columns."""
    match = re.fullmatch(r"0*([1-9][0-9]{0,4})", os.environ.get("COLUMNS", ""))
    return int(match.group(1)) if match else None


stdout = _console(stderr=False)
stderr = _console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def print_json(document: Any) -> None:
    """One JSON document on stdout; numbers that JSON has no word for become null."""
    if sys.stdout is None:
        return
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    json.dump(_plain(document), sys.stdout, indent=2, ensure_ascii=not is_unicode)
    sys.stdout.write("\n")


def print_paths(paths: Sequence[Path], *, as_json: bool) -> None:
    """Files that a command has written: one a line, or a document with the key ``files``."""
    if as_json:
        print_json({"files": [str(path) for path in paths]})
        return
    for path in paths:
        stdout.print(str(path), highlight=False, markup=False, soft_wrap=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
