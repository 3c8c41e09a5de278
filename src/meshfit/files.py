"""Reading the YAML files a person writes, and saying what is wrong with them in one line each."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from meshfit.errors import InputError, nearest_name, shown

Model = TypeVar("Model", bound=BaseModel)

_MOST_PROBLEMS = 8
_MOST_BYTES = 2**20  # no file that a person writes is near this size; a device never ends


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """The mapping a YAML file holds.

    Raises:
        InputError: no such file, not YAML (with line and column), a key twice, or not a mapping.
    """
    text = read_text(path)
    try:
        document = yaml.load(text, _UniqueKeyLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        raise InputError(f"{path} is not YAML{where}: {problem}") from None
    if not isinstance(document, dict):
        found = "nothing" if document is None else type(document).__name__
        raise InputError(f"{path} must hold keys and values (a mapping); found {found}")
    return document


def is_file(path: Path) -> bool:
    """Whether ``path`` is a file; False for a name that the system cannot even look up."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_text(path: Path) -> str:
    """The text of a file that a person writes.

    Raises:
        InputError: no such file, too large to be one, or not text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # a name that no file can have
        raise InputError(f"cannot read {shown(str(path))}: {error}") from None
    if len(content) > _MOST_BYTES:
        raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB, so no file of meshfit's")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a UTF-8 text file (byte {error.start})") from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML forbids a key twice in one mapping; PyYAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def validate(kind: type[Model], document: Mapping[str, Any], source: str) -> Model:
    """``document`` as ``kind``.

    Raises:
        InputError: every problem, one a line: the key, the value and what is expected; an unknown
            key comes with the nearest known one.
    """
    try:
        return kind.model_validate(dict(document))
    except ValidationError as error:
        problems = _explained(kind, error.errors())
        more = len(problems) - _MOST_PROBLEMS
        lines = problems[:_MOST_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        raise InputError(f"{source}: " + "\n".join(lines)) from None


def _explained(kind: type[BaseModel], problems: Sequence[Any]) -> list[str]:
    """One line a key. A key that may be of several types has a problem with each of them: those of
    the type that went deepest count, or all of them together."""
    tags = _type_tags(kind)
    by_key: dict[tuple[str, ...], list[Any]] = {}
    for problem in problems:
        by_key.setdefault(_without_tags(problem, tags), []).append(problem)
    deepest = [key for key in by_key if not any(_is_inside(other, key) for other in by_key)]
    return [_explain(kind, key, by_key[key]) for key in deepest]


def _is_inside(inner: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _explain(kind: type[BaseModel], location: tuple[str, ...], problems: Sequence[Any]) -> str:
    key = ".".join(location)
    match problems[0]["type"]:
        case "extra_forbidden":
            fields = _model_at(kind, location[:-1]).model_fields
            known = [field.alias or name for name, field in fields.items()]
            nearest = nearest_name(location[-1], known)
            hint = f"did you mean {nearest!r}?" if nearest else f"known keys: {', '.join(known)}"
            return f"unknown key {key!r}; {hint}"
        case "missing":
            return f"{key!r} is missing"
        case _:
            return explain_value(key, problems)


def explain_value(name: str, problems: Sequence[Any]) -> str:
    """What is wrong with the value of a key or an option, in one line: pydantic's ``problems`` with it,
    one of each type that was tried."""
    value = shown(problems[0].get("input"))
    if problems[0]["type"] == "literal_error":
        return f"{name}: {value} is not one of {problems[0]['ctx']['expected']}"
    expected = " or ".join(dict.fromkeys(_expected(problem) for problem in problems))
    return f"{name}: {value} is not allowed; expected {expected}"


def _expected(problem: Any) -> str:
    """What pydantic expects, in the words of a YAML file."""
    match problem["type"]:
        case "dict_type" | "model_type" | "mapping_type":
            return "keys and values"
        case "literal_error":
            return f"one of {problem['ctx']['expected']}"
        case "too_short":
            return f"a list of at least {problem['ctx']['min_length']}"
        case _:
            message = str(problem["msg"]).removeprefix("Value error, ")
            message = message.removeprefix("Input should be ").partition(", unable")[0]
            return message.replace("a valid ", "a ").replace("a integer", "an integer")


def _without_tags(problem: Any, tags: Collection[str]) -> tuple[str, ...]:
    """Where the problem is. Pydantic puts the tried type of a union into the location, too."""
    *outer, last = map(str, problem["loc"])
    is_key = problem["type"] in ("extra_forbidden", "missing")
    kept = [part for part in outer if not _is_tag(part, tags)]
    return (*kept, last) if is_key or not _is_tag(last, tags) else tuple(kept)


def _is_tag(part: str, tags: Collection[str]) -> bool:
    return part in tags or "[" in part or part.startswith(("function-", "constrained-"))


def _type_tags(kind: type[BaseModel]) -> set[str]:
    """What pydantic calls the types below ``kind``: ``str``, ``int``, ``LayoutFile``."""
    tags = {"str", "int", "float", "bool", "none"}
    for field in kind.model_fields.values():
        nested = _model_in(field.annotation)
        if nested is not None:
            tags |= {nested.__name__} | _type_tags(nested)
    return tags


def _model_at(kind: type[BaseModel], location: tuple[str, ...]) -> type[BaseModel]:
    """The model class that holds the key after ``location``."""
    for part in location:
        field = kind.model_fields.get(part)
        if field is None:  # an index into a list: stay
            continue
        nested = _model_in(field.annotation)
        if nested is None:
            return kind
        kind = nested
    return kind


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
