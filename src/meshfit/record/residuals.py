"""The calibration file: what was predicted of a layout that really ran, and what was measured.

One JSON document a line, dated, only ever appended to. A row holds everything its prediction was
made of, so that a later meshfit can predict it anew with its own formulas; what was predicted when
it ran stays beside it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshfit.errors import InputError
from meshfit.record.files import decode, encode
from meshfit.record.lines import append_lines, whole_lines
from meshfit.record.schema import Residual
from meshfit.user_catalogue import user_folder

FILE_NAME = "calibration.jsonl"


@dataclass(frozen=True, kw_only=True)
class ReadResiduals:
    """The rows of a file, the oldest first, and how many could not be read, by reason."""

    rows: tuple[Residual, ...]
    unreadable: dict[str, int]


def default_calibration_path() -> Path:
    """The person's own file, beside their catalogue."""
    return user_folder() / FILE_NAME


def read_residuals(path: Path) -> ReadResiduals:
    """Every row; none of a file that is not there.

    A file outlives versions of meshfit: lines that this one cannot read are counted, not refused.

    Raises:
        InputError: the file cannot be read, or not one of its lines.
    """
    rows: list[Residual] = []
    unreadable: Counter[str] = Counter()
    lines = whole_lines(path)
    for line in lines:
        try:
            rows.append(decode(Residual, line, where="it"))
        except InputError:
            unreadable["written by another version of meshfit, or damaged"] += 1
    if lines and not rows:
        raise InputError(
            f"{path} is no calibration file: not one of its {len(lines)} lines is a residual of a "
            f"run; `meshfit fit` writes such files"
        )
    return ReadResiduals(rows=tuple(rows), unreadable=dict(unreadable))


def store_residuals(path: Path, rows: Sequence[Residual]) -> int:
    """Append those ``rows`` that the file does not hold yet; how many they were.

    Raises:
        InputError: the file cannot be read, or not be written to.
    """
    held = {row.key for row in read_residuals(path).rows}
    new = [row for row in rows if row.key not in held]
    if new:
        try:
            append_lines(path, [encode(row) for row in new])
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from None
    return len(new)
