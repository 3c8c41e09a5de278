"""Reading a Hugging Face ``config.json``."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from meshfit.errors import InputError

CONFIG_NAME = "config.json"
MAX_CONFIG_BYTES = 64 * 2**20
"""No config is near this size; a larger file (weights, a device) is not read into memory."""


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a config file, or in the ``config.json`` of a folder.

    ``Infinity``, ``-Infinity`` and ``NaN`` are read although JSON has none, since published
    configs contain them. A file that wraps its config (no ``model_type`` and no ``architectures``,
    but a mapping under ``config``) gives the inner mapping.

    Raises:
        InputError: there is no such file, it cannot be read, it holds no JSON object, or a key twice
            with different values.
    """
    file = path / CONFIG_NAME if is_folder(path) else path
    return _unwrap(_parse(_read_bytes(file), file))


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder; False for a path that the system cannot even look up."""
    try:
        return path.is_dir()
    except OSError:
        return False


def path_exists(path: Path) -> bool:
    """Whether ``path`` is there; False for a path that the system cannot even look up."""
    try:
        return path.exists()
    except OSError:
        return False


def _read_bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; a model folder must hold {CONFIG_NAME}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({error})") from None
    if len(content) > MAX_CONFIG_BYTES:
        raise InputError(f"{file}: larger than {MAX_CONFIG_BYTES // 2**20} MiB, so no model config")
    return content


def _parse(content: bytes, file: Path) -> dict[str, Any]:
    try:
        document = json.loads(content, object_pairs_hook=partial(_mapping, file))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file}: not JSON at line {error.lineno}, column {error.colno} ({error.msg})"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not text in {error.encoding} at byte {error.start}") from None
    except RecursionError:
        raise InputError(f"{file}: nested too deeply for a model config") from None
    except ValueError:  # the only one left: Python reads no longer integers
        raise InputError(
            f"{file}: holds a number of more than {sys.get_int_max_str_digits()} digits, so it is"
            " no model config"
        ) from None
    if not isinstance(document, dict):
        kind = {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}
        found = kind.get(type(document), "a number")
        raise InputError(f"{file}: holds {found}; a model config is a JSON object {{...}}")
    return document


def _mapping(file: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a mapping.

    Raises:
        InputError: a key stands there twice with different values.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        for key, value in pairs:
            if value != found[key]:
                raise InputError(
                    f"{file}: the key {key[:60]!r} stands there twice with different values;"
                    " keep one of them"
                )
    return found


def _unwrap(document: dict[str, Any]) -> dict[str, Any]:
    inner = document.get("config")
    if "model_type" in document or "architectures" in document or not isinstance(inner, dict):
        return document
    return inner
