"""Find the constants of ``serve/time/constants.csv`` again from measured servers.

    python tools/fit_serving.py serving.csv [ROUNDS] > constants.csv

Starts from those that are shipped; a round takes up to a minute.
"""

import csv
import sys
from pathlib import Path

from meshfit.serve.time.device import serving_constants
from meshfit.validate.serving.fit import fitted_to
from meshfit.validate.serving.rows import read_serving_rows


def main() -> None:
    rows = read_serving_rows(Path(sys.argv[1]))
    fitted = fitted_to(rows, rounds=int(sys.argv[2]) if len(sys.argv) > 2 else 4)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("name", "value", "low", "high", "fitted", "meaning", "source"))
    for name, entry in serving_constants().entries.items():
        value, low, high = f"{fitted[name]:.4g}", f"{entry.low:g}", f"{entry.high:g}"
        fits = "yes" if entry.is_fitted else "no"
        writer.writerow((name, value, low, high, fits, entry.meaning, entry.source))


if __name__ == "__main__":
    main()
