"""What makes a folder a checkpoint: its manifest. Free of PyTorch.

A checkpoint is ``FOLDER/step-N``, written under another name and renamed when it is whole; so a
save that was interrupted is none, and never takes the place of the last good one. The manifest says
what run it is of and what every file must be; it is written last.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from meshfit.errors import InputError

MANIFEST_NAME = "manifest.json"
UNFINISHED_PATTERN = ".step-*.unfinished"
SCHEMA_VERSION = 1
_STEP = re.compile(r"step-(\d+)")
_BLOCK_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """One file of a checkpoint as it was when it was whole."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint is.

    Attributes:
        step: optimizer steps behind it, which is also the number of the global batch that comes next:
            data are a function of that number, so it is the whole data position.
        layout: label of the layout it was saved under. It loads under any other.
        identity: what a run must have in common with it to go on from it.
        files: by name, the manifest itself left out.
    """

    schema_version: int = SCHEMA_VERSION
    meshfit: str
    step: int
    layout: str
    identity: dict[str, Any]
    files: dict[str, StoredFile]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files.values())


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint after ``step`` steps lies once it is whole."""
    return folder / f"step-{step}"


def unfinished_path(folder: Path, step: int) -> Path:
    """Where it is written."""
    return folder / UNFINISHED_PATTERN.replace("*", str(step))


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in ``folder`` from the first step to the last; unfinished ones are none."""
    numbered = [
        (int(match.group(1)), path)
        for path in folder.glob("step-*")
        if (match := _STEP.fullmatch(path.name)) and (path / MANIFEST_NAME).exists()
    ]
    return [path for _, path in sorted(numbered)]


def read_manifest(checkpoint: Path) -> Manifest:
    """The manifest of a checkpoint.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    path = checkpoint / MANIFEST_NAME
    try:
        manifest: Manifest = TypeAdapter(Manifest).validate_json(path.read_bytes())
    except OSError:
        raise InputError(
            f"{checkpoint} is no checkpoint of meshfit: it has no {MANIFEST_NAME}"
        ) from None
    except ValidationError as error:
        raise InputError(
            f"checkpoint {checkpoint} is damaged: {MANIFEST_NAME} cannot be read "
            f"({error.errors(include_url=False)[0]['msg']})"
        ) from None
    if manifest.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"checkpoint {checkpoint} has schema_version {manifest.schema_version}, this meshfit "
            f"reads {SCHEMA_VERSION}"
        )
    return manifest


def check_identity(checkpoint: Path, saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """
    Raises:
        InputError: the checkpoint is of a run of another model, optimizer or data order; the
            message says what differs.
    """
    differing = [key for key in here if saved.get(key) != here[key]]
    if differing:
        words = "; ".join(
            f"{key} is {saved.get(key)} there and {here[key]} here" for key in differing
        )
        raise InputError(f"checkpoint {checkpoint} is of another run: {words}")


def check_files(checkpoint: Path, manifest: Manifest, names: Iterable[str]) -> None:
    """Read files of a checkpoint once, to see whether they are what was written.

    Raises:
        InputError: one is missing, of another length, or of other content.
    """
    for name in names:
        expected, path = manifest.files[name], checkpoint / name
        if not path.exists():
            raise InputError(f"checkpoint {checkpoint} is damaged: {name} is missing")
        found = describe_file(path)
        if found.size_bytes != expected.size_bytes:
            raise InputError(
                f"checkpoint {checkpoint} is damaged: {name} has {found.size_bytes} bytes instead of "
                f"{expected.size_bytes}"
            )
        if found.sha256 != expected.sha256:
            raise InputError(
                f"checkpoint {checkpoint} is damaged: {name} has changed since it was written "
                f"(its SHA-256 differs)"
            )


def describe_file(path: Path) -> StoredFile:
    """Length and checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return StoredFile(size_bytes=path.stat().st_size, sha256=digest.hexdigest())
