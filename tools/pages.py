"""Tables that tools write into pages of docs/; the words around them are written by hand and stay."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"

_BETWEEN_MARKS = re.compile(
    r"(?P<begin><!-- tables: \S+ -->).*(?P<end><!-- end of tables -->)", re.DOTALL
)


def write_tables(page: Path, tables: str) -> None:
    """Puts ``tables`` between the two marks of ``page``.

    Raises:
        ValueError: it has none.
    """
    text, count = _BETWEEN_MARKS.subn(
        lambda marks: f"{marks['begin']}\n\n{tables}\n{marks['end']}",
        page.read_text(encoding="utf-8"),
    )
    if count == 0:
        raise ValueError(f"{page} has no marks between which tables go")
    page.write_text(text, encoding="utf-8")
