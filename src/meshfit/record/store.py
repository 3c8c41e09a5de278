"""results.jsonl of a run folder: one line for every launch that ended, only ever appended to."""

from pathlib import Path

from meshfit.errors import InputError
from meshfit.record.files import decode, encode
from meshfit.record.lines import append_lines, whole_lines
from meshfit.record.schema import Record

RECORDS_NAME = "results.jsonl"


class RecordStore:
    """The rows of one run folder. Its user holds the folder's lock (``record.lock``)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORDS_NAME

    def append(self, record: Record) -> None:
        """Adds one row, which is on the disk when this returns."""
        append_lines(self.path, [encode(record)])

    def records(self, plan_hash: str | None = None) -> list[Record]:
        """The rows in the order they were appended, those of one plan or all.

        Raises:
            InputError: a line is broken, of another schema version, or no record. The message
                names the line and the reason; nothing is guessed or skipped.
        """
        lines = whole_lines(self.path)
        rows = [self._decode(line, number) for number, line in enumerate(lines, start=1)]
        return [row for row in rows if plan_hash in (None, row.plan_hash)]

    def _decode(self, line: bytes, number: int) -> Record:
        try:
            return decode(Record, line, where=f"{self.path}, line {number},")
        except InputError as error:
            raise InputError(f"{error}; without that line, its launch is run again") from None
