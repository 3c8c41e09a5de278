"""Options of a command in a shell script, without running it.

Understood are comments, continued lines, ``NAME=value``, ``NAME="several words"``, ``NAME=( words )``,
``+=``, ``export``, and ``$NAME``, ``${NAME}``, ``${NAME:-default}``, ``${NAME[@]}`` of names that the script
itself sets, and ``$((...))`` of whole numbers. What else a shell would work out stays as written.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshfit.engines.syntax.arithmetic import whole_value
from meshfit.engines.syntax.setting import Setting
from meshfit.errors import InputError

Word = tuple[str, int]
"""A word and the line it stands on."""

_ASSIGNMENT = re.compile(r"\s*(?:export\s+|local\s+)?([A-Za-z_]\w*)(\+?)=(.*?)\s*", re.DOTALL)
_SEVERAL = re.compile(
    r"\s*(?:export\s+)?(?:[A-Za-z_]\w*=[^\s()\"';]*[;\s]+)+[A-Za-z_]\w*=[^\s()\"';]*;?\s*"
)
_REFERENCE = re.compile(
    r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::-([^{}]*))?\}|\$([A-Za-z_]\w*)|\$\(\(([^()]*)\)\)"
)
_SUM = re.compile(r"\$\(\([^()\n]*\)\)")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?", re.DOTALL)

MOST_ROUNDS = 20
"""References to references that are followed."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a script sets.

    Attributes:
        variables: the last value of each; words of a list are joined by spaces.
        settings: the options of all its commands, ``--name value`` and ``--name=value``.
    """

    variables: Mapping[str, str]
    settings: tuple[Setting, ...]


def read_script(text: str, values: Mapping[str, str]) -> Script:
    """Variables and options of a script, or of one command line.

    Args:
        values: option -> how many values it takes: ``flag``, ``one`` or ``many``. Of one that is not
            listed, a word that follows is its value.

    Raises:
        InputError: a quote or bracket is never closed; names the line.
    """
    variables: dict[str, str] = {}
    words: list[Word] = []
    for statement, line in _statements(text):
        match = _ASSIGNMENT.fullmatch(statement)
        if match is None:
            words += _words(statement, line)
            continue
        name, appended, value = match.groups()
        listed = _words(_inside(value), line)
        joined = " ".join(word for word, _ in listed)
        variables[name] = f"{variables.get(name, '')} {joined}".strip() if appended else joined
        if any(_OPTION.fullmatch(word) for word, _ in listed):
            words += listed
    resolved = {name: _resolved(value, variables) for name, value in variables.items()}
    return Script(variables=resolved, settings=tuple(_settings(_expanded(words, resolved), values)))


def _statements(text: str) -> Iterator[Word]:
    """Statements with the line they begin on; continued lines, lists and quotes belong together."""
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _without_comment(raw, pending)
        start = start if pending else number
        continued = line.rstrip().endswith("\\")
        pending += line.rstrip()[:-1] if continued else line
        if continued or _is_open(pending):
            pending += "\n"
            continue
        yield from ((part, start) for part in _parts(pending))
        pending = ""
    if pending.strip():
        if _is_open(pending):
            raise InputError(f"line {start}: a quote or a bracket is never closed")
        yield pending, start


def _parts(statement: str) -> list[str]:
    """``export A=1 B=2`` and ``A=1; B=2`` one by one."""
    if not statement.strip():
        return []
    if _SEVERAL.fullmatch(statement) is None:
        return [statement]
    parts = re.split(r"[;\s]+", statement.strip().removeprefix("export"))
    return [part for part in parts if part]


def _without_comment(line: str, before: str) -> str:
    """The line up to a ``#`` that no quote holds."""
    quote = _open_quote(before)
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (index == 0 or line[index - 1].isspace()):
            return line[:index]
    return line


def _open_quote(text: str) -> str:
    quote = ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    return quote


def _is_open(text: str) -> bool:
    """Whether a quote, or the bracket of a list (``NAME=(``), is still open at the end."""
    if _open_quote(text):
        return True
    is_list = re.match(r"\s*[A-Za-z_]\w*\+?=\(", text) is not None
    return is_list and text.count("(") > text.count(")")


def _inside(value: str) -> str:
    """What the quotes or brackets around a whole value hold."""
    for opening, closing in (("(", ")"), ('"', '"'), ("'", "'")):
        if len(value) > 1 and value[0] == opening and value[-1] == closing:
            return value[1:-1]
    return value


def _words(statement: str, line: int) -> list[Word]:
    """Words as a shell splits them, with their lines."""
    found: list[Word] = []
    for offset, row in enumerate(_SUM.sub(_without_spaces, statement).split("\n")):
        try:
            split = shlex.split(row)
        except ValueError:  # a quote that goes on in another row
            split = [word.strip("\"'") for word in row.split()]
        found += [(word, line + offset) for word in split]
    return found


def _without_spaces(match: re.Match[str]) -> str:
    return match[0].replace(" ", "")


def _resolved(text: str, variables: Mapping[str, str]) -> str:
    """``text`` with what the script itself sets put in."""

    def value(match: re.Match[str]) -> str:
        name, default, bare, sum_ = match.groups()
        if sum_ is None:
            return variables.get(name or bare, match[0] if default is None else default)
        inner = re.sub(r"\$?([A-Za-z_]\w*)", lambda m: variables.get(m[1], m[0]), sum_)
        worked_out = whole_value(inner)
        return match[0] if worked_out is None else str(worked_out)

    for _ in range(MOST_ROUNDS):
        further = _REFERENCE.sub(value, text)
        if further == text:
            break
        text = further
    return text


def _expanded(words: list[Word], variables: Mapping[str, str]) -> Iterator[Word]:
    """Words with variables put in; options that a variable holds stand where it is set, not here."""
    for word, line in words:
        resolved = _resolved(word, variables)
        if not (_REFERENCE.fullmatch(word) and resolved.lstrip().startswith("-")):
            yield resolved, line


def _settings(words: Iterator[Word], values: Mapping[str, str]) -> Iterator[Setting]:
    """Options with as many of the words behind them as they take."""
    name, line, most = "", 0, 0
    taken: list[str] = []
    for word, at in words:
        if _OPTION.fullmatch(word):
            if name:
                yield _setting(name, taken, line)
            name, equals, value = word.partition("=")
            taken, line = [value] if equals else [], at
            most = {"flag": 0, "many": 1 << 30}.get(values.get(name, "one"), 1)
        elif name and len(taken) < most:
            taken.append(word)
    if name:
        yield _setting(name, taken, line)


def _setting(name: str, values: list[str], line: int) -> Setting:
    return Setting(name=name, value=" ".join(values) if values else True, line=line)
