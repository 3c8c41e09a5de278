"""How commands speak: one document or tables on stdout, everything else on stderr."""

import json
import math
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

stdout = Console()
stderr = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def print_json(document: Any) -> None:
    """One JSON document on stdout; numbers that JSON has no word for become null."""
    json.dump(_plain(document), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
