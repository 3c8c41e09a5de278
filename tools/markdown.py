"""Tables in Markdown, as the generated pages of docs/ have them."""

from collections.abc import Iterable, Iterator, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; a bar in a cell does not end it."""
    yield _line(header)
    yield "|" + "---|" * len(header)
    for row in rows:
        yield _line([cell.replace("|", r"\|") for cell in row])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
