"""Settings of YAML, JSON and TOML files by dotted name, each with its line."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import yaml

from meshfit.engines.syntax.setting import Setting
from meshfit.errors import InputError


def read_yaml(text: str) -> list[Setting]:
    """Settings of a YAML or JSON mapping, blocks by dotted name.

    Raises:
        InputError: it is neither, or a key stands twice in one block; names the line.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(node, yaml.MappingNode):
            raise InputError("line 1: a mapping of options is expected")
        return list(_of_mapping(node, ""))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise InputError(f"{where}{getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise InputError("blocks in blocks, too deep for a file of options") from None


def read_json(text: str) -> list[Setting]:
    """Settings of a JSON object, blocks by dotted name.

    Raises:
        InputError: it is none (comments and a comma before a bracket are no JSON), or a key stands twice;
            names the line.
    """
    text = text.removeprefix("\ufeff")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"line {error.lineno}: no JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise InputError("no JSON: too deep, or a number too long, for a file of options") from None
    return read_yaml(text.replace("\t", " "))


_TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)


def read_json_with_comments(text: str) -> list[Setting]:
    """Settings of a JSON object that may have comments, and commas before brackets.

    Raises:
        InputError: it is none even so; names the line.
    """
    return read_yaml(without_comments(text.removeprefix("\ufeff")))


def without_comments(text: str) -> str:
    """JSON with blanks in place of comments and tabs, every other character where it was."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return _TEXT_OR_COMMENT.sub(blank, text).replace("\t", " ")


def _of_mapping(node: yaml.MappingNode, prefix: str) -> Iterator[Setting]:
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(f"line {line}: the name of an option must be one word")
        name = f"{prefix}{key.value}"
        if name in seen:
            raise InputError(f"line {line}: {name} stands in line {seen[name]} already; keep one")
        seen[name] = line
        yield Setting(name=name, value=_plain(value), line=line)
        if isinstance(value, yaml.MappingNode):
            yield from _of_mapping(value, f"{name}.")


def _plain(node: yaml.Node) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(node, deep=True)
    except ValueError as error:  # a date that is none
        raise InputError(f"line {node.start_mark.line + 1}: {error}") from None


def read_toml(text: str) -> list[Setting]:
    """Settings of a TOML file, tables by dotted name.

    Raises:
        InputError: it is no TOML; names the line.
    """
    try:
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        where = f"line {found[1]}: " if found else ""
        raise InputError(f"{where}{str(error).split(' (at')[0]}") from None
    except (RecursionError, ValueError):
        raise InputError("no TOML: too deep, or a number too long, for a file of options") from None
    return list(_of_table(document, "", _lines_of_toml(text)))


def _of_table(table: dict[str, Any], prefix: str, lines: dict[str, int]) -> Iterator[Setting]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        yield Setting(name=name, value=value, line=lines.get(name, 1))
        if isinstance(value, dict):
            yield from _of_table(value, f"{name}.", lines)


def _lines_of_toml(text: str) -> dict[str, int]:
    """Dotted name of tables and keys -> line."""
    lines: dict[str, int] = {}
    table = ""
    for number, row in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", row):
            table = f"{header[1].strip()}."
            lines[header[1].strip()] = number
        elif key := re.match(r"\s*([\w.-]+)\s*=", row):
            lines[table + key[1]] = number
    return lines
