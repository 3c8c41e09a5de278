"""Square tables whose first word in every row is the device it is about."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.cluster.discover.text import Line, SourceText

GPU_LABEL = re.compile(r"GPU\d+")
_CELL = re.compile(r"X|NV\d+|SYS|SOC|NODE|PHB|PXB|PIX|PSB|OK|CNS|GNS|TNS|NS|DR|U")
_LEGEND = re.compile(r"\s*(NIC )?Legend\b")


@dataclass(frozen=True, kw_only=True)
class Row:
    """``cells`` stand under the devices, ``rest`` is what follows the last of them."""

    line: Line
    label: str
    cells: tuple[str, ...]
    rest: str


def table_lines(source: SourceText) -> tuple[Line, ...]:
    """Lines from the header (or the first row) of the only table with rows named ``GPU0 ...``.

    Fails when there is none, or a second one.
    """
    starts = [i for i, line in enumerate(source.lines) if line.words[:1] and _starts_row(line)]
    if not starts:
        source.fail(None, "no row starts with GPU0")
    first = starts[0]
    end = next(
        (i for i in range(first, len(source.lines)) if _ends_table(source.lines, i)),
        len(source.lines),
    )
    later = [i for i in starts if i >= end]
    if later:
        source.fail(source.lines[later[0]], "a second table; give each host a file of its own")
    begin = first
    if first and is_header(source.lines[first - 1]):
        begin = first - 1
    return tuple(line for line in source.lines[begin:end] if line.text.strip())


def row_of(source: SourceText, line: Line, columns: int) -> Row:
    """A row of so many cells. Fails when it has fewer."""
    words = list(re.finditer(r"\S+", line.text))
    if len(words) < columns + 1:
        source.fail(
            line,
            f"row {words[0][0]} has {len(words) - 1} cells where {columns} devices need as many",
        )
    return Row(
        line=line,
        label=words[0][0],
        cells=tuple(word[0] for word in words[1 : columns + 1]),
        rest=line.text[words[columns].end() :],
    )


def check_square(source: SourceText, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Fails when a row is there twice, its ``X`` is not its own, or two rows disagree."""
    by_label: dict[str, Row] = {}
    for row in rows:
        if row.label in by_label:
            source.fail(row.line, f"row {row.label} is there twice")
        by_label[row.label] = row
    for row in rows:
        marks = [label for label, cell in zip(columns, row.cells, strict=True) if cell == "X"]
        if marks != [row.label]:
            found = ", ".join(marks) or "none"
            source.fail(
                row.line, f"row {row.label} must hold X under {row.label} only; X is under {found}"
            )
    place = {label: index for index, label in enumerate(columns)}
    for row in rows:
        for label, cell in zip(columns, row.cells, strict=True):
            other = by_label.get(label)
            if other is not None and other.cells[place[row.label]] != cell:
                source.fail(
                    row.line,
                    f"row {row.label} says {cell} of {label}, but row {label} (line "
                    f"{other.line.number}) says {other.cells[place[row.label]]}",
                )


def _starts_row(line: Line) -> bool:
    return GPU_LABEL.fullmatch(line.words[0]) is not None and _has_cell(line)


def is_header(line: Line) -> bool:
    """A line that starts with a device and holds no cell."""
    words = line.words
    return bool(words) and GPU_LABEL.match(words[0]) is not None and not _has_cell(line)


def _has_cell(line: Line) -> bool:
    return any(_CELL.fullmatch(word) for word in line.words[1:])


def _ends_table(lines: Sequence[Line], index: int) -> bool:
    """A line that is no row: a legend, a prompt, or an empty line that no further row follows."""
    line = lines[index]
    if line.text.strip():
        return _LEGEND.match(line.text) is not None or not _has_cell(line)
    following = next((later for later in lines[index:] if later.text.strip()), None)
    return following is None or "=" in following.words or not _has_cell(following)
