"""What the source says of the keys of a class, and which keys a function's document has.

Both are read from the source's syntax: docstrings under keys are not there at run time.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

_LISTED = re.compile(r"(\w+(?:, \w+)*): (.*)", re.DOTALL)
_ENTRY = re.compile(r"\n(?=\w+(?:, \w+)*: )")


@dataclass(frozen=True, kw_only=True)
class SourceKey:
    """One annotated key of a class; ``meaning`` is empty where nothing is said of it."""

    name: str
    annotation: ast.expr
    meaning: str


def keys_of_class(kind: type) -> list[SourceKey]:
    """The keys that ``kind`` itself annotates, in order, each with the docstring under it or its
    entry below ``Attributes:``."""
    (tree,) = _parsed(kind).body
    assert isinstance(tree, ast.ClassDef)
    listed = _attributes(inspect.cleandoc(ast.get_docstring(tree) or ""))
    below = dict(zip(tree.body, tree.body[1:], strict=False))
    return [
        SourceKey(
            name=node.target.id,
            annotation=node.annotation,
            meaning=markdown(_text_of(below.get(node)) or listed.get(node.target.id, "")),
        )
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]


def summary_of(thing: type | Callable[..., Any]) -> str:
    """Its docstring in Markdown, without sections such as ``Args:``."""
    own = thing.__dict__.get("__doc__") if isinstance(thing, type) else thing.__doc__
    text = inspect.cleandoc(own or "")
    return markdown(re.split(r"\n\n(?:Args|Raises|Attributes):\n", text)[0])


def markdown(text: str) -> str:
    """A docstring's words on one line a paragraph, code in single backticks."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return re.sub(r"``(.+?)``", r"`\1`", "\n\n".join(paragraphs))


def keys_of_document(builder: Callable[..., Any]) -> list[str]:
    """Paths of the keys in what ``builder`` returns, in the order of its source.

    ``rows[].name`` is in every item of a list, ``by_host.*.name`` in every value of a mapping. What a
    called function of meshfit returns is followed; what a method returns is not.
    """
    return list(dict.fromkeys(_Builder(builder, seen=frozenset()).keys("")))


class _Builder:
    """One function, and the expressions that its local names are given."""

    def __init__(self, function: Callable[..., Any], seen: frozenset[object]) -> None:
        self._globals: Mapping[str, Any] = getattr(function, "__globals__", {})
        self._seen = seen | {function}
        (self._tree,) = _parsed(function).body
        self._values: dict[str, list[ast.expr]] = {}
        self._items: dict[str, list[tuple[str, ast.expr]]] = {}
        for node in ast.walk(self._tree):
            self._assign(node)

    def keys(self, prefix: str) -> Iterator[str]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
                yield from self._of(node.value, prefix, frozenset())

    def _assign(self, node: ast.AST) -> None:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.AugAssign(target=ast.Name(id=name), op=ast.BitOr(), value=value)
            ):
                self._values.setdefault(name, []).append(value)
            case ast.Assign(
                targets=[
                    ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)))
                ],
                value=value,
            ):
                self._items.setdefault(name, []).append((key, value))

    def _of(self, value: ast.expr, prefix: str, names: frozenset[str]) -> Iterator[str]:
        match value:
            case ast.Dict(keys=keys, values=values):
                for key, item in zip(keys, values, strict=True):
                    if key is None:
                        yield from self._of(item, prefix, names)
                    elif isinstance(key, ast.Constant):
                        yield from self._item(str(key.value), item, prefix, names)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                yield from self._of(left, prefix, names)
                yield from self._of(right, prefix, names)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self._of(body, prefix, names)
                yield from self._of(orelse, prefix, names)
            case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item) | ast.List(elts=[item, *_]):
                yield from self._of(item, f"{prefix.removesuffix('.')}[].", names)
            case ast.DictComp(value=item):
                yield from self._of(item, f"{prefix}*.", names)
            case ast.Name(id=name) if name not in names:
                for given in self._values.get(name, []):
                    yield from self._of(given, prefix, names | {name})
                for key, item in self._items.get(name, []):
                    yield from self._item(key, item, prefix, names | {name})
            case ast.Call(func=ast.Name(id=name), keywords=keywords):
                yield from self._called(self._globals.get(name), keywords, prefix, names)

    def _item(self, key: str, value: ast.expr, prefix: str, names: frozenset[str]) -> Iterator[str]:
        yield f"{prefix}{key}"
        yield from self._of(value, f"{prefix}{key}.", names)

    def _called(
        self, called: object, keywords: list[ast.keyword], prefix: str, names: frozenset[str]
    ) -> Iterator[str]:
        if isinstance(called, FunctionType) and called.__module__.startswith("meshfit."):
            if called not in self._seen:
                yield from _Builder(called, self._seen).keys(prefix)
        elif hasattr(called, "__total__"):  # a TypedDict
            for keyword in keywords:
                if keyword.arg is not None:
                    yield from self._item(keyword.arg, keyword.value, prefix, names)


def _parsed(thing: type | Callable[..., Any]) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def _text_of(node: ast.stmt | None) -> str:
    """The docstring that ``node`` is, empty where it is something else."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
    return ""


def _attributes(docstring: str) -> dict[str, str]:
    """Entries of the section ``Attributes:``; one may be of several keys."""
    _, _, section = docstring.partition("Attributes:\n")
    entries = {}
    for entry in _ENTRY.split(inspect.cleandoc(section)):
        if (match := _LISTED.fullmatch(entry)) is not None:
            entries |= dict.fromkeys(match.group(1).split(", "), match.group(2))
    return entries
