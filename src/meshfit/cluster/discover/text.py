"""A source as lines with numbers, free of what terminals and parallel shells add."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from meshfit.errors import InputError, shown

_MOST_BYTES = 64 * 2**20  # ibnetdiscover of the largest fabrics stays below
_ESCAPE = re.compile(r"(?:\x1b|\^\[|\\e|\\033|\\x1b)\[[0-9;?]*[A-Za-z]|(?<![\w\]])\[\d{1,2}m")
_HOST = re.compile(r"^([A-Za-z][A-Za-z0-9._-]*): ?")


@dataclass(frozen=True)
class Line:
    number: int
    text: str

    @property
    def words(self) -> list[str]:
        return self.text.split()


@dataclass(frozen=True)
class SourceText:
    """``name``: how messages call it. ``lines`` keep their numbers when some are taken out."""

    name: str
    lines: tuple[Line, ...]
    host: str | None = None

    @cached_property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @cached_property
    def by_host(self) -> tuple["SourceText", ...]:
        """The parts of each host where a parallel shell (pdsh, clush) has put its name before every
        line; else the whole."""
        written = [line for line in self.lines if line.text.strip()]
        hosts = [_HOST.match(line.text) for line in written]
        if not written or not all(hosts) or any(_is_own(line) for line in written):
            return (self,)
        parts: dict[str, list[Line]] = {}
        for line, match in zip(written, hosts, strict=True):
            assert match is not None
            parts.setdefault(match[1], []).append(Line(line.number, line.text[match.end() :]))
        return tuple(SourceText(self.name, tuple(part), host) for host, part in parts.items())

    def fail(self, line: Line | int | None, message: str) -> NoReturn:
        """Raises the one message that says where the source cannot be read."""
        number = line.number if isinstance(line, Line) else line
        where = f" line {number}" if number else ""
        raise InputError(f"{self.name}{where}: {message}")

    def blocks(self) -> Iterator[tuple[Line, ...]]:
        """Lines between empty ones."""
        block: list[Line] = []
        for line in self.lines:
            if line.text.strip():
                block.append(line)
            elif block:
                yield tuple(block)
                block = []
        if block:
            yield tuple(block)


def source_of(name: str, text: str) -> SourceText:
    """``text`` without escape sequences, carriage returns and a byte order mark."""
    plain = text.removeprefix("\ufeff").replace("\xa0", " ")
    lines = plain.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return SourceText(
        name, tuple(Line(number, _ESCAPE.sub("", line)) for number, line in enumerate(lines, 1))
    )


def read_source(path: Path) -> SourceText:
    """The text of a file.

    Raises:
        InputError: it cannot be read, is empty, is no text, or is larger than 64 MiB.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"cannot read {shown(str(path))}: {error}") from None
    if len(content) > _MOST_BYTES:
        raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB, so no topology")
    return source_of(str(path), _decoded(path, content))


def _decoded(path: Path, content: bytes) -> str:
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{path} line {line}: not a text file") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise InputError(f"{path} line {line}: not a text file")
    if not text.strip():
        raise InputError(f"{path} is empty")
    return text


def _is_own(line: Line) -> bool:
    """Lines of a tool itself that look as if a host's name stood before them."""
    return bool(re.match(r"(NIC\d+|GPU\d+): ", line.text))
