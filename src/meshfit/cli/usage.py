"""What is wrong with a command line, in one line as every other mistake is."""

from typing import Any

from pydantic import ValidationError
from typer.core import TyperOption
from typer.exceptions import TyperException

from meshfit.errors import nearest_name
from meshfit.files import explain_value


def usage_message(error: TyperException) -> str:
    """The message for a command line that cannot be read.

    Typer keeps the classes of these errors to itself, so what they carry tells them apart: an unknown
    option what it could have been, a missing argument its type, a wrong value its parameter.
    """
    parameter = getattr(error, "param", None)
    context = getattr(error, "ctx", None)
    if context is not None and hasattr(error, "possibilities"):
        return _unknown_option(error, context)
    if parameter is None:
        message = _sentence(error.format_message())
    elif hasattr(error, "param_type"):
        message = f"{_name_of(parameter)} is missing"
    else:
        return _wrong_value(error, _name_of(parameter))
    if context is None or "; did you mean" in message:
        return message
    return f"{message}; `{context.command_path} --help` shows what it takes"


def _unknown_option(error: Any, context: Any) -> str:
    command = context.command_path
    known = [name for one in context.command.params for name in one.opts if name.startswith("--")]
    nearest = nearest_name(error.option_name, [*known, "--help"])
    hint = f"did you mean {nearest}?" if nearest else f"`{command} --help` lists those that it has"
    return f"{command} has no option {error.option_name}; {hint}"


def _wrong_value(error: TyperException, name: str) -> str:
    """Typer's own types of values come with pydantic's problems; choices with a sentence."""
    if isinstance(cause := error.__cause__, ValidationError):
        problems = cause.errors()
        if problems[0]["type"] != "value_error":
            return explain_value(name, problems)
        return f"{name}: {problems[0]['msg'].removeprefix('Value error, ').removesuffix('.')}"
    return f"{name}: {_sentence(str(error))}"


def _name_of(parameter: Any) -> str:
    """As help shows it: ``--top``, ``JOB``."""
    if isinstance(parameter, TyperOption):
        return max(parameter.opts, key=len)
    return str(parameter.display_name_raw)


def _sentence(text: str) -> str:
    """As ours are: ``no such command 'plam'; did you mean 'plan'?``"""
    text = text.replace(". Did you mean", "; did you mean").removesuffix(".")
    return text[:1].lower() + text[1:]
