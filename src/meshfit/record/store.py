"""results.jsonl of a run folder: one line for every launch that ended, only ever appended to.

A row exists once its line break is on the disk. A process killed while it writes leaves a line
without one: that line is no row, and the next append cuts it off.
"""

import logging
import os
from pathlib import Path
from typing import BinaryIO

from meshfit.errors import InputError
from meshfit.record.files import decode, encode, sync_folder
from meshfit.record.schema import Record

RECORDS_NAME = "results.jsonl"

_log = logging.getLogger(__name__)


class RecordStore:
    """The rows of one run folder. Its user holds the folder's lock (``record.lock``)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORDS_NAME

    def append(self, record: Record) -> None:
        """Adds one row, which is on the disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self.path.exists()
        with self.path.open("a+b") as file:
            _cut_torn_line(file)
            file.write(encode(record) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self.path.parent)

    def records(self, plan_hash: str | None = None) -> list[Record]:
        """The rows in the order they were appended, those of one plan or all.

        Raises:
            InputError: a line is broken, of another schema version, or no record. The message
                names the line and the reason; nothing is guessed or skipped.
        """
        *lines, torn = self._lines()
        if torn:
            _log.warning("%s ends in a half-written line, which is ignored", self.path)
        rows = [self._decode(line, number) for number, line in enumerate(lines, start=1)]
        return [row for row in rows if plan_hash in (None, row.plan_hash)]

    def _decode(self, line: bytes, number: int) -> Record:
        try:
            return decode(Record, line, where=f"{self.path}, line {number},")
        except InputError as error:
            raise InputError(f"{error}; without that line, its launch is run again") from None

    def _lines(self) -> list[bytes]:
        """Complete lines, then what follows the last line break (nothing, in a whole file)."""
        try:
            return self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return [b""]
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}") from None


def _cut_torn_line(file: BinaryIO) -> None:
    """Ends ``file`` after its last line break."""
    file.seek(0)
    contents = file.read()
    whole_bytes = contents.rfind(b"\n") + 1
    if whole_bytes < len(contents):
        _log.warning("%s: a half-written last line is cut off", file.name)
        file.truncate(whole_bytes)
