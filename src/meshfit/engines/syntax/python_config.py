"""A Python function that builds a configuration, read by its syntax tree and never run."""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeGuard

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


def read_python(text: str, sections: Collection[str]) -> PythonConfig:
    """The one function that returns a configuration.

    Args:
        sections: blocks of a configuration, which tell its functions from others.

    Raises:
        InputError: no Python, no function that sets anything, several that do, or a field that is
            set otherwise than by a plain assignment; names the line.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InputError(f"line {line}: no Python: {getattr(error, 'msg', error)}") from None
    constants = _constants(tree.body)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    own = {one.name for one in functions}
    found = [config for one in functions if (config := _config(one, constants, own)) is not None]
    if len(found) > 1:
        found = [
            one for one in found if any(_section(s) in sections for s in one.settings)
        ] or found
    if not found:
        raise InputError("no function makes a configuration, as in `config = llama3_8b()`")
    if len(found) > 1:
        names = ", ".join(config.name for config in found)
        raise InputError(f"several functions make a configuration ({names}); keep one in the file")
    return found[0]


def _section(setting: Setting) -> str:
    return setting.name.partition(".")[0]


def _constants(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """Names that are set once, to a number or a text that is written out -> the value."""
    constants: dict[str, ast.expr] = {}
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                constants[name] = _Put(constants).visit(value)
    times = [node.id for one in body for node in ast.walk(one) if _is_stored(node)]
    return {name: value for name, value in constants.items() if times.count(name) == 1}


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


class _Put(ast.NodeTransformer):
    """Puts constants in place of their names."""

    def __init__(self, constants: Mapping[str, ast.expr]) -> None:
        self._constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        held = self._constants.get(node.id)
        is_plain = isinstance(held, ast.Constant | ast.BinOp | ast.UnaryOp)
        return held if held is not None and is_plain else node


def _config(
    function: ast.FunctionDef, constants: Mapping[str, ast.expr], own: Collection[str]
) -> PythonConfig | None:
    """What one function sets; None where it makes no configuration."""
    inner = {**constants, **_constants(function.body)}
    base, variable = None, None
    calls = _calls(function)
    settings: list[Setting] = []
    read: set[int] = set()
    for node in function.body:
        given = node
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if not variable:
                if any(_is_of(one, name) for one in ast.walk(function)):
                    variable, base = name, _called(call, calls)
                    settings += _keywords(_Put(inner).visit(call), "")
            case ast.Assign(targets=[ast.Attribute() as target], value=value):
                settings += _assigned(target, _Put(inner).visit(value), variable)
                if ast.unparse(target).split(".")[0] == variable:
                    read.add(id(given))
            case ast.Return(value=ast.Call() as call) if not variable:
                base = _called(call, calls)
                settings += _keywords(_Put(inner).visit(call), "")
    if base is None:
        return None
    _refuse_what_is_not_read(function, read, variable, own)
    return PythonConfig(name=function.name, base=base, settings=tuple(settings))


def _is_of(node: ast.AST, name: str) -> bool:
    """Whether a node returns ``name``, or sets a field of it."""
    match node:
        case ast.Return(value=ast.Name(id=returned)):
            return returned == name
        case ast.Attribute(ctx=ast.Store()):
            return ast.unparse(node).startswith(f"{name}.")
    return False


def _refuse_what_is_not_read(
    function: ast.FunctionDef, read: Collection[int], variable: str | None, own: Collection[str]
) -> None:
    """Does nothing where all fields are set by plain assignments of the function itself.

    Raises:
        InputError: one hangs on a condition or a loop, or is set through another name or by another
            function of the file (``own``); names the line.
    """
    plain = {id(target) for one in function.body if id(one) in read for target in ast.walk(one)}
    made = [node for node in ast.walk(function) if _is_stored(node) and node.id == variable]
    if len(made) > 1:
        raise InputError(f"line {made[1].lineno}: {variable} is made twice; keep one")
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _hands_over(node, variable, own):
            raise InputError(
                f"line {node.lineno}: {ast.unparse(node)} may set fields of {variable}, which are not read; "
                f"set them in the function itself"
            )
        is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        match node:
            case ast.Call(func=ast.Name(id="setattr")):
                is_set = True
            case ast.keyword(arg=None):
                raise InputError(
                    f"line {node.value.lineno}: **{ast.unparse(node.value)} is not read; write the fields"
                )
        if is_set and id(node) not in plain:
            line = getattr(node, "lineno", 1)
            raise InputError(
                f"line {line}: {ast.unparse(node)} is set otherwise than by `config.block.field = value` "
                f"in the function itself"
            )


def _hands_over(call: ast.Call, variable: str | None, own: Collection[str]) -> bool:
    """Whether a call gives the configuration, or a block of it, to another function of the file."""
    given = (ast.unparse(one) for one in (*call.args, *(one.value for one in call.keywords)))
    return ast.unparse(call.func) in own and any(one.split(".")[0] == variable for one in given)


def _calls(function: ast.FunctionDef) -> dict[str, ast.Call]:
    """Names of a function that are set to what a call returns -> that call."""
    return {
        name: call
        for node in function.body
        if isinstance(node, ast.Assign) and isinstance(call := node.value, ast.Call)
        for name in (target.id for target in node.targets if isinstance(target, ast.Name))
    }


def _called(call: ast.Call, calls: Mapping[str, ast.Call] = MappingProxyType({})) -> str:
    """The name of what is called; of ``replace(llama3_8b(), ...)`` that of what it starts from."""
    name = ast.unparse(call.func)
    if name.rpartition(".")[2] == "replace" and call.args:
        first = call.args[0]
        started = calls.get(first.id) if isinstance(first, ast.Name) else first
        if isinstance(started, ast.Call) and started is not call:
            return _called(started)
    return name


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
        is_configured = _called(node)[0].isupper() or ".Config" in _called(node)
        return _called(node) if is_configured else ast.unparse(node)
    text = ast.unparse(node)
    value = whole_value(text)
    return text if value is None else value
