"""Put what ``meshfit fit examples/tiny-llama`` printed into docs/quickstart.md, a part of it into README.md.

    meshfit fit examples/tiny-llama > out.txt; python -m tools.fit_output out.txt

Widths are those of a terminal of 140 columns. A test holds the README's part to the whole.
"""

import argparse
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import dropwhile, takewhile
from pathlib import Path

from tools.pages import DOCS

README, QUICKSTART = DOCS.parent / "README.md", DOCS / "quickstart.md"
COMMAND = "$ meshfit fit examples/tiny-llama"

_BLOCK = re.compile(
    r"(?P<begin><!-- output of make fit: [^\n]*-->\n\n```\w*\n).*?(?P<end>```\n\n<!-- end of output -->)",
    re.DOTALL,
)
_SHOWN_STRATEGIES = 3
_README_WIDTH = 112


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    printed = parser.parse_args().output.read_text(encoding="utf-8").replace(str(Path.home()), "~")
    lines = [line.rstrip() for line in printed.rstrip().splitlines()]
    whole = list(dropwhile(lambda line: not line.startswith("╭"), lines))
    _write(QUICKSTART, [COMMAND, *whole])
    _write(README, list(_part(whole)))


def _part(lines: Sequence[str]) -> Iterator[str]:
    """The winner with its reason, and the first strategies of the table without their third lines."""
    panel = [line.strip("│ ") for line in lines if line.startswith("│")]
    winner = next(i for i, line in enumerate(panel) if line.startswith("Winner"))
    reason = takewhile(lambda line: not line.startswith("engine "), panel[winner + 1 :])
    yield panel[winner]
    yield from textwrap.wrap(
        " ".join(reason), _README_WIDTH, break_long_words=False, break_on_hyphens=False
    )
    yield ""
    title = next(i for i, line in enumerate(lines) if line.startswith("Candidates, measured"))
    yield lines[title + 2]
    rows = list(takewhile(bool, lines[title + 4 :]))
    for strategy in _strategies(rows)[:_SHOWN_STRATEGIES]:
        yield from strategy[:2]
    yield ""
    yield lines[title + 4 + len(rows) + 1]


def _strategies(rows: Sequence[str]) -> list[list[str]]:
    """Rows by strategy: its name begins one, a layout (``tp=4``) or nothing goes on with it."""
    found: list[list[str]] = []
    for row in rows:
        first = row.strip().split("  ")[0]
        if row[1:2] != " " and "=" not in first:
            found.append([])
        found[-1].append(row)
    return found


def _write(page: Path, lines: Sequence[str]) -> None:
    text = "\n".join(lines)
    written, count = _BLOCK.subn(
        lambda block: f"{block['begin']}{text}\n{block['end']}", page.read_text(encoding="utf-8")
    )
    if count != 1:
        raise ValueError(f"{page} has {count} blocks of output, not one")
    page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
