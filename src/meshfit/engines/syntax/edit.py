"""A file with some options set otherwise, everything else as it was."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from meshfit.engines.layout_options import Options, OptionValue
from meshfit.engines.syntax.setting import Setting

Editor = Callable[[str, Sequence[Setting], Options], str]
"""From a text, the options that it sets and what is to be set otherwise."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """How one kind of file writes an option.

    Attributes:
        found: pattern of what stands in a line before the value, of the last part of a name.
        value: pattern of the value itself.
        line: a whole line of a new option.
        truths: spelling of true and false; None where an option that is true is a bare flag.
        blocks: whether names are dotted, and the block that holds an option has a line of its own.
    """

    found: Callable[[str], str]
    value: str
    line: Callable[[str, str], str]
    truths: Mapping[bool, str] | None
    blocks: bool = True


_LOWER = {True: "true", False: "false"}

SHELL = Style(
    found=lambda name: re.escape(name) + r"(?![\w-])(?:[ =]+(?!--))?",
    value=r"(?:\"[^\"]*\"|'[^']*'|(?!--)[^\s\\)\"']+)?",
    line=lambda name, value: f"{name} {value}".rstrip(),
    truths=None,
    blocks=False,
)
HYDRA = Style(
    found=lambda name: re.escape(name) + "=",
    value=r"\"[^\"]*\"|'[^']*'|[^\s\\)\"']*",
    line=lambda name, value: f"{name}={value}",
    truths=_LOWER,
    blocks=False,
)
YAML = Style(
    found=lambda name: r"\"?" + re.escape(name) + r"\"?\s*:\s*",
    value=r"\{[^{}\n]*\}|[^,#\n}]*[^,#\s}]",
    line=lambda name, value: f"{name}: {value}",
    truths=_LOWER,
)
TOML = Style(
    found=lambda name: re.escape(name) + r"\s*=\s*",
    value=r"\"[^\"]*\"|[^#\n]*[^#\s]",
    line=lambda name, value: f"{name} = {value}",
    truths=_LOWER,
)


def edited(text: str, settings: Sequence[Setting], changes: Options, style: Style) -> str:
    """``text`` with ``changes`` made where the options stand; new ones behind their kind."""
    lines = text.splitlines()
    places = {setting.name: setting.line - 1 for setting in settings}
    for name, value in changes.items():
        if name in places and value is not None and not (style.truths is None and value is False):
            lines[places[name]] = _replaced(lines[places[name]], name, value, style)
        elif name in places:
            lines[places[name]] = _without(lines[places[name]], name, style)
    for block in _emptied(settings, changes) if style is YAML else ():
        lines[places[block]] = _GONE
    new: Options = {
        name: value
        for name, value in changes.items()
        if name not in places and value is not None and (value is not False or style.truths)
    }
    blocks = _by_block(new, style)
    for block, options in sorted(
        blocks.items(), key=lambda item: bool(item[0]) and item[0] not in places
    ):
        _insert(lines, places, block, options, style)
    rows = (row for line in lines for row in line.split("\n") if not row.endswith(_GONE))
    return "\n".join(rows) + "\n"


def says(before: Sequence[Setting], after: Sequence[Setting], changes: Options) -> bool:
    """Whether the options of an edited file are those of the file as it was, with ``changes`` made."""
    expected, found = _plain(before), _plain(after)
    for name, value in changes.items():
        expected = {
            key: held
            for key, held in expected.items()
            if key != name and not key.startswith(f"{name}.")
        }
        if value not in (None, False, _NULL):
            expected[name] = _as_text(value)
        elif value is False and found.get(name) == "false":
            del found[name]
    return found == expected


_NULL = "null"
"""A value that says that there is none, in files whose fields have to be there."""


def _plain(settings: Iterable[Setting]) -> dict[str, str]:
    """Options that are no blocks, each as a text that all ways to write it share."""
    return {
        one.name: _as_text(one.value)
        for one in settings
        if one.value is not None and not isinstance(one.value, dict)
    }


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _emptied(settings: Sequence[Setting], changes: Options) -> set[str]:
    """Blocks whose every option is taken away, and none added."""

    def blocks(names: Iterable[str]) -> set[str]:
        return {name.rpartition(".")[0] for name in names} - {""}

    gone = {name for name, value in changes.items() if value is None}
    kept = {one.name for one in settings} | set(changes)
    return blocks(one.name for one in settings if one.name in gone) - blocks(kept - gone)


def _by_block(options: Options, style: Style) -> dict[str, Options]:
    """Options by the block that holds them, by their names inside it."""
    blocks: dict[str, Options] = {}
    for name, value in options.items():
        block, _, last = name.rpartition(".") if style.blocks else ("", "", name)
        blocks.setdefault(block, {})[last] = value
    return blocks


_GONE = "\0"
"""In place of a line of which nothing is left."""


def _replaced(line: str, name: str, value: OptionValue, style: Style) -> str:
    pattern = f"({style.found(_last(name, style))})({style.value})"
    return re.sub(pattern, lambda match: _joined(match[1], _text(value, style)), line, count=1)


def _joined(before: str, value: str) -> str:
    return f"{before} {value}" if value and before[-1].isalnum() else f"{before}{value}"


def _without(line: str, name: str, style: Style) -> str:
    """The line without an option; nothing of it where it holds no other."""
    rest = re.sub(f"{style.found(_last(name, style))}(?:{style.value})[, ]?", "", line, count=1)
    return rest if rest.strip(" \\\t") else _indent(line) + _GONE


def _insert(
    lines: list[str], places: Mapping[str, int], block: str, options: Options, style: Style
) -> None:
    """New options of one block, beside those of it that the file sets."""
    written = [style.line(name, _text(value, style)) for name, value in options.items()]
    if block and block not in places and style.blocks:
        lines[-1] += "".join(f"\n{line}" for line in _new_block(block, written, style))
        return
    beside = [at for name, at in places.items() if _block_of(name, style) == block]
    if style.blocks:
        at = max(beside, default=places.get(block, len(lines) - 1))
        indent = _indent(lines[at]) + ("" if beside or not block or style is TOML else "  ")
        lines[at] += "".join(f"\n{indent}{line}" for line in written)
    else:
        at = max(beside, default=len(lines) - 1)
        names = [name for name, line in places.items() if line == at]
        _insert_words(lines, at, written, names)


def _insert_words(lines: list[str], at: int, written: list[str], names: Sequence[str]) -> None:
    """Options behind those of a command; where it goes over several lines each ends in a backslash.

    In a line that begins with the command, or with the name of a list, or that closes a list or a quote,
    they go in front of the first of ``names``, the options that stand there.
    """
    last, indent = lines[at], _indent(lines[at])
    goes_on = last.rstrip().endswith("\\")
    is_end = not goes_on and at > 0 and lines[at - 1].rstrip().endswith("\\")
    first = min((last.find(name) for name in names if name in last), default=-1)
    begins = not goes_on and not is_end and bool(last[:first].strip())
    if begins or (first >= 0 and last.rstrip()[-1:] in _CLOSES):
        lines[at] = f"{last[:first]}{' '.join(written)} {last[first:]}"
        return
    joint = " \\" if goes_on or is_end else ""
    rows = [last + (joint if is_end else ""), *(f"{indent}{line}{joint}" for line in written)]
    if is_end:
        rows[-1] = rows[-1].removesuffix(" \\")
    lines[at] = "\n".join(rows)


_CLOSES = ("'", '"', ")")


def _new_block(block: str, written: list[str], style: Style) -> list[str]:
    if style is TOML:
        return ["", f"[{block}]", *written]
    return [f"{block}:", *(f"  {line}" for line in written)]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _block_of(name: str, style: Style) -> str:
    return name.rpartition(".")[0] if style.blocks else ""


def _last(name: str, style: Style) -> str:
    return name.rpartition(".")[2] if style.blocks else name


def _text(value: OptionValue, style: Style) -> str:
    if isinstance(value, bool):
        return "" if style.truths is None else style.truths[value]
    needs_quotes = isinstance(value, str) and (style.blocks or re.search(r"[\s|()*]", value))
    return f'"{value}"' if needs_quotes and style is not YAML else str(value)
