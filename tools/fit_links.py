"""Fit the constants of collectives to a table of measurements, all systems at once.

    python tools/fit_links.py COLLECTIVES.csv [--write]

Prints each constant before and after; ``--write`` rewrites ``predict/costs/links.csv``. The factors of
the intervals are those that hold 80 % of the errors on systems that were left out.
"""

import argparse
import csv
import math
from pathlib import Path

import numpy as np

import meshfit.predict.costs.constants as constants_module
from meshfit.predict.costs.constants import TimeConstants, link_constants
from meshfit.validate.collectives.fit import fitted_to, measured_curves
from meshfit.validate.collectives.predictions import CollectivePrediction, predict_collectives
from meshfit.validate.collectives.rows import read_collective_rows

INSIDE = 0.8
SPREADS = {"spread.node": "intra_node", "spread.network": "multi_node"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    predictions = predict_collectives(read_collective_rows(arguments.file), print)
    modelled = [p.row for p in predictions if p.formula is not None]
    curves = measured_curves([row for row in modelled if not row.is_of_one_thread])
    before, after = link_constants(), fitted_to(curves)
    after = after.with_values(
        {name: spread_of(predictions, family) for name, family in SPREADS.items()}
    )
    for name, entry in after.entries.items():
        print(f"{name:24} {before[name]:10.4g} {entry.value:10.4g}")
    if arguments.write:
        write(after)


def spread_of(predictions: list[CollectivePrediction], family: str) -> float:
    """Factor within which the share ``INSIDE`` of a family's rows lies."""
    logs = [
        abs(math.log(p.formula / p.row.seconds))
        for p in predictions
        if p.formula is not None and p.row.family == family
    ]
    return float(np.exp(np.quantile(logs, INSIDE)))


def write(constants: TimeConstants) -> None:
    path = Path(constants_module.__file__).with_name(constants_module.LINKS_FILE)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("name", "value", "low", "high", "fitted", "meaning", "source"))
        for name, c in constants.entries.items():
            fitted = "yes" if c.is_fitted else "no"
            row = (name, f"{c.value:.4g}", f"{c.low:g}", f"{c.high:g}", fitted, c.meaning, c.source)
            table.writerow(row)


if __name__ == "__main__":
    main()
