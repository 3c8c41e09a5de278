"""How commands speak: one document or tables on stdout, everything else on stderr."""

import json
import math
import os
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
    is_sized = stream.isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, width=None if is_sized else WIDTH_OF_FILES)


stdout = _console(stderr=False)
stderr = _console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def print_json(document: Any) -> None:
    """One JSON document on stdout; numbers that JSON has no word for become null."""
    json.dump(_plain(document), sys.stdout, indent=2, ensure_ascii=False)
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
