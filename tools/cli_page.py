"""``docs/cli.md``, made from the command line itself: ``python -m tools.cli_page > docs/cli.md``.

A test compares the page with what this writes.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer.main

from meshfit.cli.main import app
from meshfit.errors import InputError, NothingFitsError, RunError
from tools.markdown import table
from tools.source_keys import markdown

_HEAD = f"""\
# Commands

Every command with its arguments and options, as `meshfit COMMAND --help` says them. This page is written by
`python -m tools.cli_page`; a test keeps it equal to the commands.

`--json` prints one document on stdout ([its keys](json.md)), of an error too; everything that is no result goes
to stderr.
Keys of a job file are in [job.md](job.md).

## Exit codes

| code | means |
|---|---|
| 0 | done: it fits, it was run, the files are written |
| {NothingFitsError.exit_code} | the input is valid and the answer is no: nothing fits (`plan`, `check`, `dryrun`, `serve plan`), targets are missed (`serve`, `validate --targets`), a link is broken (`probe`) |
| {InputError.exit_code} | the input is wrong, or a layout breaks rules (`check`); the message says the rule, the values and what would work |
| {RunError.exit_code} | something that was run failed, no layout won (`fit`), something is not installed here, or the machine did not let it |
| 130 | interrupted; the same command resumes |
"""


def cli_page() -> str:
    """The whole page as Markdown."""
    return "\n".join([_HEAD, *_lines()]).rstrip() + "\n"


def commands() -> Mapping[str, Any]:
    """Every command that does something, by the words that call it."""
    return dict(_below("meshfit", typer.main.get_command(app)))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield words, command
        return
    for word, one in command.commands.items():
        yield from _below(f"{words} {word}", one)


def _lines() -> Iterator[str]:
    for words, command in commands().items():
        yield ""
        yield f"## {words}"
        yield ""
        yield markdown(inspect.cleandoc(command.help or ""))
        yield ""
        yield from table(("argument, option", "default", "meaning"), _rows(command))


def _rows(command: Any) -> Iterator[tuple[str, str, str]]:
    hints = get_type_hints(inspect.unwrap(command.callback))
    for parameter in command.params:
        if parameter.name in hints and not parameter.hidden:
            hint = hints[parameter.name]
            yield _name(parameter, hint), _default(parameter), markdown(parameter.help or "")


def _name(parameter: Any, hint: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"`{names}`" if parameter.is_flag else f"`{names} {parameter.metavar or _value(hint)}`"


def _value(hint: Any) -> str:
    """What stands for a value: its choices, or its type in capitals."""
    if get_origin(hint) is Literal:
        return "|".join(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "|".join(str(choice.value) for choice in hint)
    if isinstance(hint, type):
        return {Path: "PATH", str: "TEXT", int: "N", float: "X"}[hint]
    (inner,) = (kind for kind in get_args(hint) if kind is not NoneType)
    return _value(inner)


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = getattr(parameter.default, "value", parameter.default)
    return "" if value in (None, False, (), []) else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(cli_page())
