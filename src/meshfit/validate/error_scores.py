"""Errors of predicted memory and time over the rows that count.

An error is predicted over measured, less one. Rows of one configuration count once, by the median of
their errors; every row counts for the coverage of the intervals.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshfit.validate.figures import Figures
from meshfit.validate.rows import TruthRow
from meshfit.validate.scored import (
    configuration,
    memory_kind,
    memory_scored,
    shelf,
    time_scored,
)

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One row that counts: measured, and predicted with its interval where it is modelled."""

    row: TruthRow
    measured: float
    predicted: float | None
    interval: tuple[float, float] | None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        return None if self.predicted is None else self.predicted / self.measured - 1

    @property
    def is_covered(self) -> bool | None:
        """Whether the interval holds what was measured; None without an interval."""
        if self.predicted is None or self.interval is None:
            return None
        return self.interval[0] <= self.measured <= self.interval[1]


@dataclass(frozen=True, kw_only=True)
class ErrorScore:
    """Errors of one group of rows; None where none of them is modelled.

    Attributes:
        rows: that count.
        configurations: different ones that are modelled.
        modelled: rows that are.
        bias: median of the signed errors.
        coverage: share of intervals that hold the measurement.
    """

    rows: int
    configurations: int
    modelled: int
    median: float | None = None
    p90: float | None = None
    worst: float | None = None
    bias: float | None = None
    coverage: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The keys of the tables' scorer; those that have no value are left out."""
        document: dict[str, Any] = {
            "rows": self.rows,
            "configurations": self.configurations,
            "modelled": self.modelled,
            "median_abs_error": self.median,
            "p90_abs_error": self.p90,
            "max_abs_error": self.worst,
            "bias": self.bias,
            "interval_coverage": self.coverage,
        }
        return {key: value for key, value in document.items() if value is not None}


def memory_samples(rows: Iterable[TruthRow], figures: Mapping[str, Figures]) -> list[Sample]:
    """Rows whose memory counts, each against the figure of its own kind."""
    return [
        Sample(
            row=row,
            measured=float(row.text("peak_mem_bytes")),
            predicted=(own := _of(row, figures)).memory(memory_kind(row)),
            interval=_pair(own.memory_low, own.memory_high),
        )
        for row in rows
        if memory_scored(row)
    ]


def time_samples(rows: Iterable[TruthRow], figures: Mapping[str, Figures]) -> list[Sample]:
    """Rows whose step time counts."""
    return [
        Sample(
            row=row,
            measured=float(row.text("time_s")),
            predicted=(own := _of(row, figures)).step_time,
            interval=_pair(own.step_time_low, own.step_time_high),
        )
        for row in rows
        if time_scored(row)
    ]


def by_shelf(samples: Sequence[Sample]) -> dict[str, ErrorScore]:
    """Scores by ``FAMILY/dense`` and ``FAMILY/other`` in order, and of all together."""
    shelves: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        shelves[shelf(sample.row)].append(sample)
        shelves[ALL].append(sample)
    return {name: score(shelves[name]) for name in sorted(shelves)}


def score(samples: Sequence[Sample]) -> ErrorScore:
    """The score of a group of rows."""
    errors: dict[tuple[str, ...], list[float]] = defaultdict(list)
    covered: list[bool] = []
    for sample in samples:
        if sample.error is None:
            continue
        errors[configuration(sample.row)].append(sample.error)
        if sample.is_covered is not None:
            covered.append(sample.is_covered)
    one_each = [statistics.median(values) for values in errors.values()]
    counts = ErrorScore(
        rows=len(samples),
        configurations=len(one_each),
        modelled=sum(map(len, errors.values())),
    )
    if not one_each:
        return counts
    absolute = [abs(error) for error in one_each]
    return ErrorScore(
        rows=counts.rows,
        configurations=counts.configurations,
        modelled=counts.modelled,
        median=statistics.median(absolute),
        p90=percentile(absolute, 90),
        worst=max(absolute),
        bias=statistics.median(one_each),
        coverage=sum(covered) / len(covered) if covered else None,
    )


def score_where(samples: Iterable[Sample], is_meant: Callable[[TruthRow], bool]) -> ErrorScore:
    """The score of those rows that are meant."""
    return score([sample for sample in samples if is_meant(sample.row)])


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation between the values in order."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _of(row: TruthRow, figures: Mapping[str, Figures]) -> Figures:
    return figures.get(row.id) or Figures(id=row.id)


def _pair(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)
