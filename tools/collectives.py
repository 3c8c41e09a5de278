"""Write the tables of docs/collectives.md anew, between its two marks.

    python tools/collectives.py COLLECTIVES.csv

The words around the tables are written by hand and stay.
"""

import argparse
from pathlib import Path

from pages import DOCS, write_tables
from sections import sections_markdown

from meshfit.report.scores.collectives import collectives_sections
from meshfit.validate.collectives.document import collectives_document
from meshfit.validate.collectives.predictions import predict_collectives
from meshfit.validate.collectives.rows import read_collective_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    predictions = predict_collectives(read_collective_rows(arguments.file), print)
    document = collectives_document(arguments.file.name, predictions, with_targets=True)
    write_tables(DOCS / "collectives.md", sections_markdown(collectives_sections(document)))


if __name__ == "__main__":
    main()
