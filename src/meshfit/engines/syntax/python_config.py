"""A Python function that builds a configuration, read by its syntax tree and never run."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meshfit.engines.syntax.arithmetic import whole_value
from meshfit.engines.syntax.setting import Setting
from meshfit.errors import InputError


@dataclass(frozen=True, kw_only=True)
class PythonConfig:
    """What a function sets.

    Attributes:
        name: of the function.
        base: of the function that makes the configuration it starts from; None without one.
        settings: fields that are set, by dotted name below the configuration.
    """

    name: str
    base: str | None
    settings: tuple[Setting, ...]


def read_python(text: str) -> PythonConfig:
    """The one function that returns a configuration.

    Raises:
        InputError: no Python, no function that sets anything, or several that do.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InputError(f"line {line}: no Python: {getattr(error, 'msg', error)}") from None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = [config for config in map(_config, functions) if config.settings]
    if not found:
        raise InputError("no function sets a field of a configuration")
    if len(found) > 1:
        names = ", ".join(config.name for config in found)
        raise InputError(f"several functions make a configuration ({names}); keep one in the file")
    return found[0]


def _config(function: ast.FunctionDef) -> PythonConfig:
    base, variable = None, None
    settings: list[Setting] = []
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if not variable:
                variable, base = name, _called(call)
                settings += _keywords(call, "")
            case ast.Assign(targets=[ast.Attribute() as target], value=value):
                settings += _assigned(target, value, variable)
            case ast.Return(value=ast.Call() as call):
                base = base or _called(call)
                settings += _keywords(call, "")
    return PythonConfig(name=function.name, base=base, settings=tuple(settings))


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _assigned(target: ast.Attribute, value: ast.expr, variable: str | None) -> Iterator[Setting]:
    """``config.training.steps = 10``: the setting, and those of a call's keywords."""
    path = ast.unparse(target).split(".")
    if path[0] != variable:
        return
    name = ".".join(path[1:])
    yield Setting(name=name, value=_value(value), line=target.lineno)
    if isinstance(value, ast.Call):
        yield from _keywords(value, f"{name}.")


def _keywords(call: ast.Call, prefix: str) -> Iterator[Setting]:
    """Keyword arguments as settings, those of calls inside them by dotted name."""
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        yield Setting(
            name=f"{prefix}{keyword.arg}", value=_value(keyword.value), line=keyword.value.lineno
        )
        if isinstance(keyword.value, ast.Call):
            yield from _keywords(keyword.value, f"{prefix}{keyword.arg}.")


def _value(node: ast.expr) -> Any:
    """What is written out; of a call the name of what is called, of anything else its text."""
    try:
        return ast.literal_eval(node)
    except (ValueError, SyntaxError):
        pass
    if isinstance(node, ast.Call):
        return _called(node)
    text = ast.unparse(node)
    value = whole_value(text)
    return text if value is None else value
