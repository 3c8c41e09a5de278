"""Words of a shell script, command by command, each with its line and whether quotes held it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from meshfit.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word without its quotes; ``is_quoted`` where double or single quotes hold all of it.

    ``listed`` are the words inside the brackets of ``NAME=( ... )``; ``hangs_on`` is the ``&&`` or
    ``||`` in front of the command that the word begins. A text that is given to commands (``<<EOF``) is a
    command of one word with ``is_document``.
    """

    text: str
    line: int
    is_quoted: bool = False
    listed: tuple["Word", ...] | None = None
    hangs_on: str = ""
    is_document: bool = False


Command = tuple[Word, ...]

_BLANK = " \t\r"
_CLOSING = {"(": ")", "{": "}"}
_LIST = re.compile(r"[A-Za-z_]\w*\+?=")


def commands_of(text: str, first_line: int = 1) -> tuple[Command, ...]:
    """The simple commands of ``text`` in order: what operators and ends of lines separate.

    The files of ``>`` and ``<`` are left out.

    Raises:
        InputError: a quote or a bracket is never closed; names the line.
    """
    return tuple(_Scanner(text=text, line=first_line).commands())


@dataclass(kw_only=True)
class _Scanner:
    text: str
    line: int
    at: int = 0
    delimiters: list[str] = field(default_factory=list)
    documents: list[Word] = field(default_factory=list)
    operator: str = ""

    def commands(self) -> Iterator[Command]:
        words: list[Word] = []
        while self.at < len(self.text):
            separates = self._separator()
            if separates:
                yield from (tuple(words),) if words else ()
                yield from ((one,) for one in self.documents)
                words, self.documents = [], []
            elif (word := self._word()) is not None:
                words.append(word if words else replace(word, hangs_on=self.operator))
                self.operator = ""
        if words:
            yield tuple(words)

    def _separator(self) -> bool:
        """Whether an operator or the end of a line stood here; goes past it, blanks and comments."""
        self._skip_blanks()
        character = self._next()
        if character == "\n":
            self._end_of_line()
        elif character == "#":
            self._to_end_of_line()
        elif self.text.startswith(("<", ">", "&>"), self.at):
            self._redirection()
            return False
        elif self.text.startswith(("&&", "||"), self.at):
            self.operator = self.text[self.at : self.at + 2]
            self.at += 2
        elif character and character in ";|&()":
            self.at += 1
        elif character:
            return False
        return True

    def _next(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def _skip_blanks(self) -> None:
        while (character := self._next()) and (character in _BLANK or self._is_continued()):
            if character == "\\":
                self.at = self.text.index("\n", self.at)
                self.line += 1
            self.at += 1

    def _is_continued(self) -> bool:
        return self.text.startswith(("\\\n", "\\\r\n"), self.at)

    def _end_of_line(self) -> None:
        self.at += 1
        self.line += 1
        for delimiter in self.delimiters:
            line, rows = self.line, list[str]()
            while self.at < len(self.text) and (row := self._take_line()).strip() != delimiter:
                rows.append(row)
            self.documents.append(Word(text="\n".join(rows), line=line, is_document=True))
        self.delimiters.clear()

    def _to_end_of_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _take_line(self) -> str:
        start = self.at
        self._to_end_of_line()
        row = self.text[start : self.at]
        self.at += 1
        self.line += 1
        return row

    def _redirection(self) -> None:
        """Past ``>``, ``2>&1``, ``<<EOF`` and the word that goes with it."""
        match = re.compile(r"&?[<>]+-?(?:&(?:\d+|-))?").match(self.text, self.at)
        assert match is not None, "called at one"
        self.at = match.end()
        if match[0][-1] in "0123456789-" and "&" in match[0][1:]:
            return
        self._skip_blanks()
        word = self._word()
        if word is not None and match[0] in ("<<", "<<-"):
            self.delimiters.append(word.text)

    def _word(self) -> Word | None:
        """The word that begins here; None where it is the number of a redirected file."""
        start, line = self.at, self.line
        parts: list[str] = []
        while (character := self._next()) and not self._is_continued():
            if character in _BLANK or character in "\n;|&<>)":
                break
            if character == "(":
                if not _LIST.fullmatch("".join(parts)):
                    break
                return Word(text="".join(parts), line=line, listed=self._list(line))
            parts.append(self._part(character))
        raw = self.text[start : self.at]
        if raw.isdigit() and self._next() in ("<", ">"):
            return None
        quoted = len(parts) == 1 and raw[0] in "'\""
        return Word(text="".join(parts), line=line, is_quoted=quoted)

    def _part(self, character: str) -> str:
        """The next piece of a word without its quotes."""
        if character in "'\"":
            return self._quoted(character)
        if self.text.startswith(("$(", "${"), self.at):
            return self._bracketed()
        self.at += 1
        if character == "\\" and self._next():
            character = self._next()
            self.at += 1
        return character

    def _quoted(self, quote: str) -> str:
        start, line = self.at + 1, self.line
        self.at = start
        while self._next() != quote:
            if not self._next():
                raise InputError(f"line {line}: a quote is never closed")
            self.line += self._next() == "\n"
            self.at += 2 if quote == '"' and self._next() == "\\" else 1
        held = self.text[start : self.at]
        self.at += 1
        return held if quote == "'" else re.sub(r'\\(["$`\\])', r"\1", held)

    def _bracketed(self) -> str:
        """``$(...)``, ``$((...))`` or ``${...}`` as written."""
        start, line, open_ = self.at, self.line, [_CLOSING[self.text[self.at + 1]]]
        self.at += 2
        while open_:
            character = self._next()
            if not character:
                raise InputError(f"line {line}: a bracket is never closed")
            self.line += character == "\n"
            if character == open_[-1]:
                open_.pop()
            elif character in _CLOSING:
                open_.append(_CLOSING[character])
            self.at += 1
        return self.text[start : self.at]

    def _list(self, line: int) -> tuple[Word, ...]:
        self.at += 1
        words: list[Word] = []
        while True:
            self._skip_blanks()
            character = self._next()
            if not character:
                raise InputError(f"line {line}: a bracket is never closed")
            if character == ")":
                self.at += 1
                return tuple(words)
            if character == "\n":
                self._end_of_line()
            elif character == "#":
                self._to_end_of_line()
            elif (word := self._word()) is not None and word.text:
                words.append(word)
            elif self._next() in ("(", ";", "|", "&", "<", ">"):
                self.at += 1
