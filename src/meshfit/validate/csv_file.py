"""Reading a table of published measurements as text."""

import csv
from collections.abc import Iterable
from pathlib import Path

from meshfit.errors import InputError

MOST_SHOWN = 6
"""Of columns that are absent, how many the message names."""


def read_table(path: Path, required: Iterable[str]) -> list[dict[str, str]]:
    """Column -> cell of every row, in order.

    Raises:
        InputError: the file cannot be read, is no CSV in UTF-8, or lacks ``required`` columns.
    """
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            rows = list(reader)
            names = reader.fieldnames or ()
    except OSError as error:
        raise InputError(f"measurements {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"measurements {path} is no CSV file in UTF-8: {error}") from error
    absent = [name for name in required if name not in names]
    if absent:
        rest = f" and {len(absent) - MOST_SHOWN} more" if len(absent) > MOST_SHOWN else ""
        named = ", ".join(absent[:MOST_SHOWN])
        raise InputError(f"measurements {path} lacks columns of the schema: {named}{rest}")
    return rows
