"""The lines of a log, free of what terminals and launchers put into them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from meshfit.errors import InputError

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links, to BEL or ST
    r"|[@-Z\\-_])"
)
_PREFIX = re.compile(
    r"""\s*(?:(?:
      \[[a-z_]+\d+\]:                          # torchrun --tee: [rank0]: [default3]:
    | \d+:(?=\s)                               # srun --label
    | \[\d+,\d+\]<std(?:out|err)>:?            # mpirun --tag-output
    | [a-zA-Z][\w.-]*:(?=\s*\[20\d\d-)         # pdsh, in front of a dated line
    )\s?)+""",
    re.VERBOSE,
)
_MOST_LINE_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Line:
    """``text`` without its ``prefix``, by which a launcher marks whose output it is; empty: unmarked.

    ``is_whole``: a line break follows it.
    """

    text: str
    prefix: str = ""
    is_whole: bool = True


def log_lines(path: Path) -> Iterator[Line]:
    """The lines of a file, one after the other; what a progress bar overwrites is a line, too.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            while raw := file.readline(_MOST_LINE_BYTES):
                yield from lines_of(raw.decode("utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def lines_of(text: str) -> Iterator[Line]:
    """The lines of a piece of a log."""
    for piece in re.findall(r"[^\r\n]+[\r\n]*", _ESCAPE.sub("", text)):
        body = piece.rstrip("\r\n")
        prefix = _PREFIX.match(body)
        marked = prefix is not None and prefix.end() < len(body)
        yield Line(
            text=body[prefix.end() :] if marked and prefix else body,
            prefix=prefix.group().strip() if marked and prefix else "",
            is_whole=len(piece) > len(body),
        )
