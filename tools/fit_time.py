"""Fit the constants of the time model to published measurements, all families at once.

    python tools/fit_time.py TRAINING.csv [--write] [--rounds N]

Prints each constant before and after, and errors by family; ``--write`` rewrites
``predict/costs/constants.csv``. What a fit without each family says of it:
``meshfit validate training TRAINING.csv --leave-one-out``.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

import meshfit.predict.costs.constants as constants_module
from meshfit.predict.costs.constants import TimeConstants, shipped_constants
from meshfit.predict.costs.fitting import fit_constants
from meshfit.validate.predictions import predict_rows
from meshfit.validate.refit import MeasuredSteps, measured_steps
from meshfit.validate.rows import read_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    steps = measured_steps(predict_rows(read_rows(arguments.file)))
    start = shipped_constants()
    fitted = fit_constants(
        steps.predicted, steps.seconds, steps.families, start=start, rounds=arguments.rounds
    )
    for name, entry in start.entries.items():
        if entry.is_fitted:
            print(f"{name:24} {entry.value:8.4f} -> {fitted[name]:8.4f}")
    report("before", steps, start)
    report("after", steps, fitted)
    if arguments.write:
        write(fitted)


def report(title: str, steps: MeasuredSteps, constants: TimeConstants) -> None:
    error = steps.predicted(constants) / steps.seconds - 1
    print(title)
    for family in sorted(set(steps.families)):
        own = error[[name == family for name in steps.families]]
        print(
            f"  {family:26} {len(own):4}  median {np.median(abs(own)):6.1%}  90th percentile "
            f"{np.percentile(abs(own), 90):6.1%}  bias {np.median(own):+6.1%}"
        )


def write(constants: TimeConstants) -> None:
    path = Path(constants_module.__file__).with_name(constants_module.FILE)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("name", "value", "low", "high", "fitted", "meaning", "source"))
        for name, entry in constants.entries.items():
            fitted = "yes" if entry.is_fitted else "no"
            value = f"{entry.value:.4g}"
            out.writerow((name, value, entry.low, entry.high, fitted, entry.meaning, entry.source))


if __name__ == "__main__":
    main()
