"""Whether what ran was said to fit, and what ran out of memory was not.

Three figures and never one accuracy: answering ``fits`` to everything is right nearly always.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from meshfit.validate.figures import Figures
from meshfit.validate.predictions import FITS_FRACTION
from meshfit.validate.rows import TruthRow
from meshfit.validate.scored import fits_scored, memory_kind


@dataclass(frozen=True, kw_only=True)
class FitScore:
    """Counts of rows.

    Attributes:
        oom_rows, oom_caught, oom_called_comfortable: that ran out of memory, of those the ones
            called tight or too large, and the ones called ``fits``.
        ok_rows, ok_kept: that ran, and of those the ones not called too large.
        full_rows, full_agree: that ran and print a reserved or device peak, and of those the ones
            where ``fits`` agrees with that peak being within 0.90 of the capacity.
        unmodelled: without a verdict.
    """

    oom_rows: int = 0
    oom_caught: int = 0
    oom_called_comfortable: int = 0
    ok_rows: int = 0
    ok_kept: int = 0
    unmodelled: int = 0
    full_agree: int = 0
    full_rows: int = 0

    def as_json(self) -> dict[str, int]:
        return asdict(self)


def fit_score(rows: Iterable[TruthRow], figures: Mapping[str, Figures]) -> FitScore:
    """Counts over the rows that say something about what fits."""
    counts = dict.fromkeys(FitScore.__dataclass_fields__, 0)
    for row in rows:
        if not fits_scored(row):
            continue
        own = figures.get(row.id)
        for name in _told(row, None if own is None else own.verdict):
            counts[name] += 1
    return FitScore(**counts)


def _told(row: TruthRow, verdict: str | None) -> list[str]:
    """The counts that one row adds to."""
    if verdict is None:
        return ["unmodelled"]
    if row.text("status") == "oom":
        return ["oom_rows", "oom_called_comfortable" if verdict == "fits" else "oom_caught"]
    told = ["ok_rows"] + (["ok_kept"] if verdict != "does_not_fit" else [])
    peak, capacity = row.number("peak_mem_bytes"), row.number("capacity_bytes")
    if memory_kind(row) in ("reserved", "device") and peak and capacity:
        told.append("full_rows")
        if (peak > FITS_FRACTION * capacity) == (verdict != "fits"):
            told.append("full_agree")
    return told
