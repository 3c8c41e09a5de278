"""Documents of different lengths, and how they fill the sequences that a model is trained on."""

import csv
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshfit.errors import InputError

IntArray = NDArray[np.int64]

Filling = Literal["packed", "padded"]

LENGTH_COLUMN, COUNT_COLUMN = "length", "count"
LONGEST = 2**31 - 1

SEED = 0
SAMPLED_SEQUENCES = 2048
SAMPLED_TOKENS = 2**27
"""Of packed sequences: at most so many, and at least ``FEWEST_SEQUENCES``."""
FEWEST_SEQUENCES = 64
BINS = 128
"""Distinct lengths that a distribution of segments is reduced to."""


@dataclass(frozen=True, kw_only=True)
class DocumentSpec:
    """Documents by length.

    Attributes:
        filling: ``packed``: one after another, cut where a sequence is full, and a token sees its
            own document alone; ``padded``: one a sequence, cut at its end or padded up to it.
        lengths: (tokens, documents of that length), by length.
    """

    filling: Filling
    lengths: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Segments:
    """What sequences are made of.

    Attributes:
        lengths: (tokens, how many) of the pieces of documents in all sampled sequences, in bins
            that keep the sum of tokens and the sum of their squares.
        work: sum of squared lengths of each sampled sequence, over that of one whole document.
    """

    lengths: tuple[tuple[float, float], ...]
    work: NDArray[np.float64]


def read_documents(path: Path, filling: Filling) -> DocumentSpec:
    """The lengths of a CSV file: one a line in tokens, or columns ``length`` and ``count``.

    Raises:
        InputError: there is no such file, it is empty, or a line is not a length.
    """
    counts: Counter[int] = Counter()
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            columns: tuple[int, int | None] = (0, None)
            for cells in rows:
                if not any(cell.strip() for cell in cells):
                    continue
                if not counts and rows.line_num == 1 and not _is_count(cells[0]):
                    columns = _columns(cells, path)
                    continue
                length, count = _row(cells, columns, f"{path}, line {rows.line_num}")
                counts[length] += count
    except OSError as error:
        raise InputError(f"workload.lengths {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"workload.lengths {path} is no CSV file of lengths") from None
    if not counts:
        raise InputError(f"workload.lengths {path} holds no length; write one a line, in tokens")
    return DocumentSpec(filling=filling, lengths=tuple(sorted(counts.items())))


def useful_share(documents: DocumentSpec | None, sequence_length: int) -> float:
    """Tokens of documents over all tokens that are processed; 1 where nothing is padded."""
    if documents is None or documents.filling == "packed":
        return 1.0
    number = sum(count for _, count in documents.lengths)
    kept = sum(min(length, sequence_length) * count for length, count in documents.lengths)
    return kept / (number * sequence_length)


@lru_cache(maxsize=16)
def segments(documents: DocumentSpec, sequence_length: int) -> Segments:
    """Sequences packed from documents drawn at random with a fixed seed.

    Padded sequences are computed whole: one segment each.
    """
    if documents.filling == "padded":
        return Segments(lengths=((float(sequence_length), 1.0),), work=np.ones(1))
    stream = _drawn(documents, sequence_length)
    ends = np.cumsum(stream)
    sequences = int(ends[-1] // sequence_length)
    cuts = np.arange(1, sequences + 1, dtype=np.int64) * sequence_length
    borders = np.union1d(ends[ends < cuts[-1]], cuts)
    pieces = np.diff(borders, prepend=0)
    of_sequence = (borders - 1) // sequence_length
    squares = np.bincount(of_sequence, weights=pieces.astype(np.float64) ** 2)
    return Segments(lengths=_binned(pieces), work=np.sort(squares / float(sequence_length) ** 2))


def _drawn(documents: DocumentSpec, sequence_length: int) -> IntArray:
    """Lengths of documents in a random order that fill the sequences to be sampled."""
    lengths = np.array([length for length, _ in documents.lengths], dtype=np.int64)
    counts = np.array([count for _, count in documents.lengths], dtype=np.float64)
    share = counts / counts.sum()
    sequences = int(np.clip(SAMPLED_TOKENS // sequence_length, FEWEST_SEQUENCES, SAMPLED_SEQUENCES))
    wanted = sequences * sequence_length
    number = int(wanted / float(lengths @ share)) + 1
    drawn = np.random.default_rng(SEED).choice(lengths, size=number, p=share)
    if drawn.sum() < wanted:
        longest = int(lengths[-1])
        drawn = np.append(drawn, np.full(-(-(wanted - int(drawn.sum())) // longest), longest))
    return np.asarray(drawn)


def _binned(pieces: IntArray) -> tuple[tuple[float, float], ...]:
    """Neighbouring lengths as one, by equal shares of their squares."""
    lengths, counts = np.unique(pieces, return_counts=True)
    tokens, squares = lengths * counts, lengths.astype(np.float64) ** 2 * counts
    bins = np.minimum(BINS - 1, (BINS * (np.cumsum(squares) / squares.sum())).astype(np.int64))
    _, which = np.unique(bins, return_inverse=True)
    length = np.bincount(which, weights=squares) / np.bincount(which, weights=tokens)
    count = np.bincount(which, weights=tokens) / length
    return tuple(zip(map(float, length), map(float, count), strict=True))


def _columns(header: list[str], path: Path) -> tuple[int, int | None]:
    """Where lengths and counts stand, by the names in the first line."""
    names = [name.strip().lower() for name in header]
    if LENGTH_COLUMN not in names:
        raise InputError(
            f"workload.lengths {path}: its first line has neither a length nor a column named "
            f"{LENGTH_COLUMN}; found {', '.join(names)}"
        )
    count = names.index(COUNT_COLUMN) if COUNT_COLUMN in names else None
    return names.index(LENGTH_COLUMN), count


def _row(cells: list[str], columns: tuple[int, int | None], where: str) -> tuple[int, int]:
    length_column, count_column = columns
    values = []
    for column, name in ((length_column, LENGTH_COLUMN), (count_column, COUNT_COLUMN)):
        if column is None:
            values.append(1)
            continue
        text = cells[column].strip() if column < len(cells) else ""
        if not _is_count(text) or not 0 < int(text) <= LONGEST:
            raise InputError(
                f"workload.lengths {where}: {name} {text!r} is no whole number of at least 1"
            )
        values.append(int(text))
    return values[0], values[1]


def _is_count(text: str) -> bool:
    text = text.strip()
    return text.isascii() and text.isdigit() and len(text) <= 18
