"""The files of a run folder: JSON on disk, the frozen types of ``record.schema`` in memory.

NaN and infinities are values here (a diverged loss is a result), so they are written as ``NaN``
and ``Infinity``, which Python's ``json`` reads back.
"""

import os
from pathlib import Path
from typing import Any, TypeVar

import pydantic_core
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypeAliasType

from meshfit.errors import InputError
from meshfit.record.probe import ProbeRecord, ProbeRequest
from meshfit.record.schema import SCHEMA_VERSION, Record, Residual, RunRequest, RunResult, SweepPlan
from meshfit.record.serving import BaselineOutputs, ServingRecord, ServingRow
from meshfit.record.submission import Submission, SubmittedPart, UnderWay

REQUEST_NAME = "request.json"
RESULT_NAME = "result.json"

T = TypeVar(
    "T",
    RunRequest,
    RunResult,
    Record,
    SweepPlan,
    Residual,
    ProbeRequest,
    ProbeRecord,
    ServingRecord,
    ServingRow,
    BaselineOutputs,
    SubmittedPart,
    Submission,
    UnderWay,
)


def _adapter(kind: object) -> TypeAdapter[Any]:
    # pydantic takes no config beside a bare dataclass, but does beside an alias of one, and then
    # hands it on to the dataclasses nested in it.
    alias: Any = TypeAliasType("Document", kind)
    return TypeAdapter(alias, config=ConfigDict(extra="forbid", defer_build=True))


_ADAPTERS: dict[object, TypeAdapter[Any]] = {kind: _adapter(kind) for kind in T.__constraints__}


def encode(document: object) -> bytes:
    """One line of JSON (no line break) from a dataclass, or from anything JSON can hold."""
    return pydantic_core.to_json(document, inf_nan_mode="constants")


def decode(kind: type[T], data: bytes | str, *, where: str) -> T:
    """The ``kind`` that ``data`` holds, every nested key checked.

    Args:
        where: what the message calls the place, such as a path or a path with a line number.

    Raises:
        InputError: not JSON, of another schema version, or not a ``kind``.
    """
    try:
        document = pydantic_core.from_json(data)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    _check_version(document, kind.__name__, where)
    try:
        value: T = _ADAPTERS[kind].validate_python(document)
    except ValidationError as error:
        raise InputError(f"{where} is not a {kind.__name__}: {_first_problem(error)}") from None
    return value


def write_json_atomically(path: Path, document: object, *, durable: bool = True) -> None:
    """Replaces ``path`` by ``document`` as JSON: readers see the old file or the new one whole.

    Args:
        durable: whether the file is on the disk when this returns. A file that only tells other
            processes something (a heartbeat) need not outlive the machine.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(encode(document) + b"\n")
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Puts the names of the files in ``folder`` on the disk (a new file needs that, too)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_document(kind: type[T], path: Path) -> T:
    """The ``kind`` in the file ``path``, every nested key checked.

    Raises:
        InputError: missing, broken, or of another schema version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return decode(kind, data, where=str(path))


def _check_version(document: Any, kind: str, where: str) -> None:
    if not isinstance(document, dict):
        raise InputError(f"{where} is not a {kind}: it holds no JSON object")
    version = document.get("schema_version")
    if version == SCHEMA_VERSION:
        return
    if version is None:
        raise InputError(f"{where} is not a {kind}: it has no schema_version")
    newer = isinstance(version, int) and version > SCHEMA_VERSION
    remedy = "update meshfit, or choose" if newer else "choose"
    raise InputError(
        f"{where} has schema_version {version!r}, this meshfit reads {SCHEMA_VERSION}: "
        f"{remedy} another run folder"
    )


def _first_problem(error: ValidationError) -> str:
    first, *others = error.errors(include_url=False)
    place = ".".join(map(str, first["loc"]))
    more = f" (and {len(others)} more)" if others else ""
    return f"{place}: {first['msg']}{more}"
