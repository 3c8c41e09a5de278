"""Write the tables of docs/accuracy.md anew, between its two marks.

    python tools/accuracy.py TRAINING.csv [--leave-one-out]

The words around the tables are written by hand and stay.
"""

import argparse
from pathlib import Path

from pages import DOCS, write_tables
from sections import sections_markdown

from meshfit.report.scores.training import validation_sections
from meshfit.validate.document import validation_document
from meshfit.validate.predictions import predict_rows
from meshfit.validate.refit import leave_one_out
from meshfit.validate.rows import read_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--leave-one-out", action="store_true")
    arguments = parser.parse_args()
    rows = read_rows(arguments.file)
    predictions = predict_rows(rows)
    left_out = dict(leave_one_out(predictions)) if arguments.leave_one_out else None
    document = validation_document(
        arguments.file.name, rows, predictions, left_out=left_out, with_targets=True
    )
    write_tables(DOCS / "accuracy.md", sections_markdown(validation_sections(document)))


if __name__ == "__main__":
    main()
