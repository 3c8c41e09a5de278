"""Where tokens come from: the same ones for every layout, and for a script without meshfit.

A corpus is a pure function of the ``DataSpec`` and the global batch. A rank asks for its slice of
a global batch in global order, so which tokens a step sees depends on no layout.

Text in ten lines, as an exported script has them (``s`` tokens a sequence)::

    files = sorted(f for f in glob.glob(pattern, recursive=True) if os.path.isfile(f))
    data = b"\\0".join(open(f, "rb").read() for f in files)[: 64 * 2**20]
    data = np.frombuffer(data, np.uint8)
    windows = (len(data) - 1) // s

    def window(position):                       # position: how many sequences came before
        epoch, index = divmod(position, windows)
        start = s * np.random.default_rng((seed, epoch)).permutation(windows)[index]
        return data[start : start + s + 1]      # inputs [:-1], targets [1:]

and synthetic tokens in one::

    np.random.default_rng((seed, position)).integers(vocab_size, size=s + 1)
"""

import glob
import hashlib
import os
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meshfit.errors import InputError
from meshfit.workload.prompts import END_TOKEN, read_prompts
from meshfit.workload.training import DataSpec

MAX_TEXT_BYTES = 64 * 2**20
"""Text beyond this is left out: tier 4 runs a few steps, and every rank holds the text."""

MAX_FILES = 100_000
"""Of a path; more are a mistake (a whole disk), and take minutes to list."""

BYTE_VOCABULARY = 256
FILE_SEPARATOR = b"\0"

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus(ABC):
    """An endless sequence of samples of ``sequence_length + 1`` tokens.

    A token that is no target, part of a prompt or padding, is given as its complement ``~token``.
    """

    document_end: ClassVar[int | None] = None
    """The token that ends a document, of which none sees another; None: every sequence is one."""

    seed: int
    sequence_length: int
    global_batch_size: int

    def sample_ids(self, step: int) -> IntArray:
        """Identity of each sample of global batch ``step`` (from 0), in global order."""
        return self._ids(self._positions(step, 0, self.global_batch_size))

    def batch(self, step: int, first: int, count: int) -> IntArray:
        """Samples ``first`` to ``first + count`` of global batch ``step``.

        Shape ``[count, sequence_length + 1]``: all but the last column are inputs, all but the
        first are the targets.
        """
        assert first >= 0 and first + count <= self.global_batch_size
        return self._tokens(self._ids(self._positions(step, first, count)))

    def valid_tokens(self, step: int) -> int:
        """Targets of global batch ``step``: all tokens, where none is a prompt's or padding."""
        return self.global_batch_size * self.sequence_length

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a record keeps, so that two runs can be seen to have had the same data."""

    @abstractmethod
    def _ids(self, positions: IntArray) -> IntArray:
        """Sample ids at positions of the endless sequence."""

    @abstractmethod
    def _tokens(self, ids: IntArray) -> IntArray:
        """Tokens of samples, one row an id."""

    def _positions(self, step: int, first: int, count: int) -> IntArray:
        return step * self.global_batch_size + first + np.arange(count, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticCorpus(Corpus):
    """Uniform random tokens, each sample from a generator seeded by (seed, sample id)."""

    vocab_size: int

    def describe(self) -> dict[str, Any]:
        return {"source": "synthetic", "seed": self.seed, "vocab_size": self.vocab_size}

    def _ids(self, positions: IntArray) -> IntArray:
        return positions

    def _tokens(self, ids: IntArray) -> IntArray:
        tokens = np.empty((len(ids), self.sequence_length + 1), dtype=np.int64)
        for row, sample_id in zip(tokens, ids.tolist(), strict=True):
            generator = np.random.default_rng((self.seed, sample_id))
            row[:] = generator.integers(self.vocab_size, size=len(row))
        return tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class TextCorpus(Corpus):
    """Bytes of files in windows that do not overlap, in a new random order each epoch.

    A sample's id is its window's place in the text.
    """

    path: str
    num_files: int
    text: NDArray[np.uint8]

    @property
    def num_windows(self) -> int:
        """Samples of one epoch; the last token of a window is the first of the next."""
        return (len(self.text) - 1) // self.sequence_length

    def describe(self) -> dict[str, Any]:
        return {
            "source": "text",
            "seed": self.seed,
            "path": self.path,
            "files": self.num_files,
            "bytes": len(self.text),
            "sha256": hashlib.sha256(self.text.data).hexdigest(),
            "sequences_per_epoch": self.num_windows,
        }

    def _ids(self, positions: IntArray) -> IntArray:
        epochs, places = np.divmod(positions, self.num_windows)
        ids = np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            order = _window_order(self.seed, epoch, self.num_windows)
            ids[epochs == epoch] = order[places[epochs == epoch]]
        return ids

    def _tokens(self, ids: IntArray) -> IntArray:
        offsets = np.arange(self.sequence_length + 1)
        tokens: IntArray = self.text[ids[:, None] * self.sequence_length + offsets].astype(np.int64)
        return tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class DocumentCorpus(Corpus):
    """Prompts and answers, one after another in a new random order each epoch.

    They are cut where a sequence is full; the rest begins the next one. A sample's id is its place
    in the endless sequence.
    """

    document_end: ClassVar[int | None] = END_TOKEN

    path: str
    documents: Sequence[IntArray]

    @property
    def num_windows(self) -> int:
        """Samples of one epoch; the last token of a window is the first of the next."""
        return (sum(map(len, self.documents)) - 1) // self.sequence_length

    def valid_tokens(self, step: int) -> int:
        tokens = self.batch(step, 0, self.global_batch_size)
        return int((tokens[:, 1:] >= 0).sum())

    def describe(self) -> dict[str, Any]:
        return {
            "source": "documents",
            "seed": self.seed,
            "path": self.path,
            "documents": len(self.documents),
            "tokens": sum(map(len, self.documents)),
            "sha256": hashlib.sha256(np.concatenate(self.documents).tobytes()).hexdigest(),
            "sequences_per_epoch": self.num_windows,
        }

    def _ids(self, positions: IntArray) -> IntArray:
        return positions

    def _tokens(self, ids: IntArray) -> IntArray:
        tokens = np.empty((len(ids), self.sequence_length + 1), dtype=np.int64)
        for row, sample_id in zip(tokens, ids.tolist(), strict=True):
            epoch, window = divmod(sample_id, self.num_windows)
            start = window * self.sequence_length
            row[:] = _epoch_tokens(self, epoch)[start : start + len(row)]
        return tokens


def open_corpus(
    spec: DataSpec, *, vocab_size: int, sequence_length: int, global_batch_size: int
) -> Corpus:
    """The corpus that ``spec`` describes.

    Raises:
        InputError: a negative seed; text without a path, with a path that names no readable file,
            with less than one sequence, or for a vocabulary without all 256 bytes; documents that
            are no prompts with answers.
    """
    if spec.seed < 0:
        raise InputError(f"data.seed is {spec.seed}; it takes 0 or more")
    if spec.source == "synthetic":
        return SyntheticCorpus(
            seed=spec.seed,
            sequence_length=sequence_length,
            global_batch_size=global_batch_size,
            vocab_size=vocab_size,
        )
    if vocab_size < BYTE_VOCABULARY:
        raise InputError(
            f"text is read one token a byte, which takes vocab_size {BYTE_VOCABULARY} or more;"
            f" the model has {vocab_size}"
        )
    if not spec.path:
        raise InputError(
            f"data.source is {spec.source}, but data.path is missing; name a file or a folder"
        )
    if spec.source == "documents":
        return _document_corpus(spec.path, spec.seed, sequence_length, global_batch_size)
    files = text_files(spec.path)
    text = _joined(files)
    if len(text) <= sequence_length:
        raise InputError(
            f"data.path {spec.path!r} holds {len(text)} bytes in {len(files)} files; one sequence"
            f" of {sequence_length} tokens and its last target take {sequence_length + 1}"
        )
    return TextCorpus(
        seed=spec.seed,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
        path=spec.path,
        num_files=len(files),
        text=np.frombuffer(text, dtype=np.uint8),
    )


def _document_corpus(
    path: str, seed: int, sequence_length: int, global_batch_size: int
) -> DocumentCorpus:
    documents = read_prompts(path)
    tokens = sum(map(len, documents))
    if tokens <= sequence_length:
        raise InputError(
            f"data.path {path!r} holds {tokens} tokens in {len(documents)} documents; one sequence"
            f" of {sequence_length} tokens and its last target take {sequence_length + 1}"
        )
    return DocumentCorpus(
        seed=seed,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
        path=path,
        documents=documents,
    )


def text_pattern(path: str) -> str:
    """The glob that ``path`` stands for, for ``glob.glob(..., recursive=True)``.

    ``${stdlib}``, environment variables and ``~`` are expanded. A path that exists means itself,
    whatever its name contains; a folder means every file below it.
    """
    expanded = path.replace("${stdlib}", sysconfig.get_path("stdlib"))
    expanded = os.path.expanduser(os.path.expandvars(expanded))  # noqa: PTH111 (keeps ~nobody)
    if os.path.isdir(expanded):  # noqa: PTH112 (pathlib raises on names the system refuses)
        return f"{glob.escape(expanded.rstrip(os.sep) or os.sep)}/**/*"
    return glob.escape(expanded) if os.path.isfile(expanded) else expanded  # noqa: PTH113


def text_files(path: str) -> list[str]:
    """The files that ``path`` names, sorted by name.

    Raises:
        InputError: there are none, or more than ``MAX_FILES``.
    """
    pattern = text_pattern(path)
    try:
        found = list(islice(glob.iglob(pattern, recursive=True), MAX_FILES + 1))  # noqa: PTH207
    except (OSError, ValueError) as error:
        raise InputError(f"data.path {path!r} cannot be read ({error})") from None
    if len(found) > MAX_FILES:
        raise InputError(
            f"data.path {path!r} names more than {MAX_FILES:,} files and folders; name fewer, as in "
            "'${stdlib}/*.py'"
        )
    files = sorted(file for file in found if os.path.isfile(file))  # noqa: PTH113
    if not files:
        raise InputError(
            f"data.path {path!r} names no file (looked for {pattern});"
            " it takes a file, a folder or a glob such as '${stdlib}/*.py'"
        )
    return files


def _joined(files: Iterable[str]) -> bytes:
    """Contents with a zero byte between files, cut at ``MAX_TEXT_BYTES``."""
    pieces: list[bytes] = []
    room = MAX_TEXT_BYTES
    for file in files:
        if room < 0:
            break
        try:
            with open(file, "rb") as stream:  # noqa: PTH123
                pieces.append(stream.read(room))
        except OSError as error:
            raise InputError(f"data file {file} cannot be read ({error.strerror})") from None
        room -= len(pieces[-1]) + len(FILE_SEPARATOR)
    return FILE_SEPARATOR.join(pieces)[:MAX_TEXT_BYTES]


@lru_cache(maxsize=2)
def _epoch_tokens(corpus: DocumentCorpus, epoch: int) -> IntArray:
    """All documents one after another, in the order of that epoch."""
    order = _window_order(corpus.seed, epoch, len(corpus.documents))
    return np.concatenate([corpus.documents[index] for index in order])


@lru_cache(maxsize=4)
def _window_order(seed: int, epoch: int, num_windows: int) -> IntArray:
    return np.random.default_rng((seed, epoch)).permutation(num_windows)
