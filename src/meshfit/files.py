"""Reading the YAML files a person writes, and saying what is wrong with them in one line each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from meshfit.errors import InputError, nearest_name

Model = TypeVar("Model", bound=BaseModel)

_MOST_PROBLEMS = 8


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """The mapping a YAML file holds.

    Raises:
        InputError: no such file, not YAML (with line and column), or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a UTF-8 text file (byte {error.start})") from None
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        raise InputError(f"{path} is not YAML{where}: {problem}") from None
    if not isinstance(document, dict):
        found = "nothing" if document is None else type(document).__name__
        raise InputError(f"{path} must hold keys and values (a mapping); found {found}")
    return document


def validate(kind: type[Model], document: Mapping[str, Any], source: str) -> Model:
    """``document`` as ``kind``.

    Raises:
        InputError: every problem, one a line: the key, the value and what is expected; an unknown
            key comes with the nearest known one.
    """
    try:
        return kind.model_validate(dict(document))
    except ValidationError as error:
        problems = [_explain(kind, problem) for problem in error.errors()]
        more = len(problems) - _MOST_PROBLEMS
        lines = problems[:_MOST_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        raise InputError(f"{source}: " + "\n".join(lines)) from None


def _explain(kind: type[BaseModel], problem: Any) -> str:
    location = tuple(str(part) for part in problem["loc"] if not _is_type_tag(part))
    key = ".".join(location)
    value = problem.get("input")
    match problem["type"]:
        case "extra_forbidden":
            fields = _model_at(kind, location[:-1]).model_fields
            known = [field.alias or name for name, field in fields.items()]
            nearest = nearest_name(location[-1], known)
            hint = f"did you mean {nearest!r}?" if nearest else f"known keys: {', '.join(known)}"
            return f"unknown key {key!r}; {hint}"
        case "missing":
            return f"{key!r} is missing"
        case "literal_error":
            return f"{key}: {value!r} is not one of {problem['ctx']['expected']}"
        case _:
            message = problem["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            return f"{key}: {_short(value)} is not allowed; expected {message}"


def _is_type_tag(part: object) -> bool:
    """Pydantic puts the tried type of a union into the location (``str``, ``dict[str,any]``)."""
    return isinstance(part, str) and (
        part in ("str", "int", "float", "bool", "none")
        or "[" in part
        or part.startswith("function-")
    )


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


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
