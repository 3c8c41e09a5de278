"""Files of one JSON document a line, only ever appended to.

A line exists once its line break is on the disk. A process killed while it writes leaves a line
without one: that is no line, and the next append cuts it off.
"""

import fcntl
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from meshfit.errors import InputError
from meshfit.record.files import sync_folder

_log = logging.getLogger(__name__)


def append_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Add ``lines`` (without their breaks) to ``path``, which is made if missing; they are on the
    disk when this returns. Processes that append at once wait for each other.

    Raises:
        OSError: nothing can be written there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _cut_torn_line(file)
        file.write(b"".join(line + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)


def whole_lines(path: Path) -> list[bytes]:
    """The lines that were written to their end; none of a file that is not there.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        *lines, torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if torn:
        _log.warning("%s ends in a half-written line, which is ignored", path)
    return lines


def _cut_torn_line(file: BinaryIO) -> None:
    """Ends ``file`` after its last line break."""
    file.seek(0)
    contents = file.read()
    whole_bytes = contents.rfind(b"\n") + 1
    if whole_bytes < len(contents):
        _log.warning("%s: a half-written last line is cut off", file.name)
        file.truncate(whole_bytes)
