"""What the time model takes from measurement: few numbers, each physical, each with its source.

They belong to an accelerator, a link or an engine, never to a model or a table of measurements.
``meshfit.predict.costs.fitting`` finds the fitted ones again from any set of rows.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

FILE = "constants.csv"
LINKS_FILE = "links.csv"


@dataclass(frozen=True, kw_only=True)
class Constant:
    """One number, the range it can lie in, what it means and where it comes from."""

    value: float
    low: float
    high: float
    is_fitted: bool
    meaning: str
    source: str


@dataclass(frozen=True)
class TimeConstants:
    """All of them by name."""

    entries: Mapping[str, Constant] = field(repr=False)

    def __getitem__(self, name: str) -> float:
        return self.entries[name].value

    def of_chip(self, kind: str, chip: str | None, precision: str) -> float:
        """``KIND.CHIP.PRECISION``, or that of other chips."""
        name = f"{kind}.{chip}.{precision}"
        return self[name if name in self.entries else f"{kind}.other.{precision}"]

    def with_values(self, values: Mapping[str, float]) -> "TimeConstants":
        """The same with other values of some."""
        changed = {name: replace(self.entries[name], value=value) for name, value in values.items()}
        return TimeConstants({**self.entries, **changed})


@cache
def shipped_constants() -> TimeConstants:
    """Those of the step: ``constants.csv``."""
    return read_constants(FILE)


@cache
def link_constants() -> TimeConstants:
    """Those of collectives alone, as nccl-tests measures them: ``links.csv``."""
    return read_constants(LINKS_FILE)


def read_constants(file: str, package: str = "meshfit.predict.costs") -> TimeConstants:
    """The constants of a file that a package ships."""
    text = files(package).joinpath(file).read_text(encoding="utf-8")
    return TimeConstants(
        {
            row["name"]: Constant(
                value=float(row["value"]),
                low=float(row["low"]),
                high=float(row["high"]),
                is_fitted=row["fitted"] == "yes",
                meaning=row["meaning"],
                source=row["source"],
            )
            for row in csv.DictReader(text.splitlines())
        }
    )
