"""Find the constants of ``serve/time/constants.csv`` again from measured servers.

    python tools/fit_serving.py serving.csv [ROUNDS] > constants.csv

Starts from those that are shipped; a round takes up to a minute.
"""

import csv
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.constants import TimeConstants
from meshfit.predict.costs.fitting import fit_constants, fit_spread_scale
from meshfit.predict.costs.tables.chips import CHIP_OF, LINK_OF
from meshfit.serve.time.device import serving_constants
from meshfit.validate.serving.predictions import ENGINES, ServedGroup, served_groups
from meshfit.validate.serving.rows import ServingRow, read_serving_rows

FloatArray = NDArray[np.float64]

TOLERANCE = 0.12
"""Relative error at which a row weighs half."""
PACES: dict[str, str] = {"pace": "tpot_s", "start": "ttft_s"}
"""Constants of releases that scale a latency, and whose."""
LEAST_ROWS_OF_RELEASE = 40
SHRINK_ROWS = 10
"""Rows that pull a release's pace to that of all."""


def main() -> None:
    rows = read_serving_rows(Path(sys.argv[1]))
    fitted = fitted_to(rows, rounds=int(sys.argv[2]) if len(sys.argv) > 2 else 4)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("name", "value", "low", "high", "fitted", "meaning", "source"))
    for name, entry in serving_constants().entries.items():
        value, low, high = f"{fitted[name]:.4g}", f"{entry.low:g}", f"{entry.high:g}"
        fits = "yes" if entry.is_fitted else "no"
        writer.writerow((name, value, low, high, fits, entry.meaning, entry.source))


def fitted_to(rows: Sequence[ServingRow], *, rounds: int = 4) -> TimeConstants:
    """Constants fitted to these rows, from those that are shipped: rates and overheads first, then
    the paces of each release with enough rows, by the median of what is left, and at last the half
    widths that hold four of five rows."""
    groups, reasons = served_groups(rows)
    kept = [number for number in range(len(rows)) if number not in reasons]
    remembered = _Remembered(groups, len(rows))
    measured = np.array([[row.tpot_s for row in rows], [row.ttft_s for row in rows]])
    both = np.concatenate([kept, [len(rows) + number for number in kept]])
    families = [f"{_family(rows[number])}/{kind}" for kind in ("tpot", "ttft") for number in kept]
    constants = fit_constants(
        lambda known: remembered.predicted(known)[both],
        measured.ravel()[both],
        families,
        start=_without_paces(serving_constants()),
        rounds=rounds,
        tolerance=TOLERANCE,
    )
    paced = _with_paces(rows, kept, remembered.predicted(constants), constants)
    errors = np.log(remembered.predicted(paced).reshape(measured.shape) / measured)[:, kept]
    return paced.with_values(
        {
            f"spread.{metric}": fit_spread_scale(of_metric, np.ones(len(kept)))
            for metric, of_metric in zip(("tpot", "ttft"), errors, strict=True)
        }
    )


@dataclass
class _Remembered:
    """Groups of rows whose predictions are kept by the constants they rest on."""

    groups: Sequence[ServedGroup]
    num_rows: int
    known: dict[tuple[object, ...], tuple[list[float], list[float]]] = field(default_factory=dict)

    def predicted(self, constants: TimeConstants) -> FloatArray:
        """Seconds a token of every row, then to the first token of every row."""
        found = np.full((2, self.num_rows), np.nan)
        for number, group in enumerate(self.groups):
            key = (number, *(constants[name] for name in _names(group, constants)))
            if key not in self.known:
                self.known[key] = group.predicted(constants)
            found[:, group.rows] = self.known[key]
        return found.ravel()


def _names(group: ServedGroup, constants: TimeConstants) -> list[str]:
    """Constants that a group's prediction rests on."""
    accelerator, engine = group.clock.topology.accelerator.name, group.clock.profile.name
    own = {
        CHIP_OF.get(accelerator), LINK_OF.get(accelerator), engine,
        f"{engine}-{group.clock.release}", "other", "",
    }  # fmt: skip
    return [
        name
        for name in constants.entries
        if (rest := name.partition(".")[2]) in own or rest.partition(".")[0] in own
    ]


def _without_paces(constants: TimeConstants) -> TimeConstants:
    """Paces stay out of the first fit."""
    return TimeConstants(
        {
            name: replace(entry, is_fitted=False) if name.partition(".")[0] in PACES else entry
            for name, entry in constants.entries.items()
        }
    )


def _with_paces(
    rows: Sequence[ServingRow],
    kept: Sequence[int],
    predicted: FloatArray,
    constants: TimeConstants,
) -> TimeConstants:
    """With those of releases that have any; ``predicted`` as ``_Remembered`` has it."""
    left: dict[str, list[float]] = defaultdict(list)
    shipped = serving_constants()
    for of_kind, (kind, measured) in zip(predicted.reshape(2, -1), PACES.items(), strict=True):
        for number in kept:
            row = rows[number]
            name = f"{kind}.{ENGINES[row.backend]}-{row.release}"
            if name in shipped.entries:
                ratio = getattr(row, measured) / of_kind[number]
                left[name].append(math.log(ratio) + math.log(constants[name]))
    paces = {}
    for name, logs in left.items():
        if len(logs) >= LEAST_ROWS_OF_RELEASE:
            shrunk = statistics.median(logs) * len(logs) / (len(logs) + SHRINK_ROWS)
            entry = shipped.entries[name]
            paces[name] = min(max(math.exp(shrunk), entry.low), entry.high)
    return constants.with_values(paces)


def _family(row: ServingRow) -> str:
    return f"{row.system}/{row.backend}/{row.model}"


if __name__ == "__main__":
    main()
