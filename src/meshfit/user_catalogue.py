"""A person's own catalogue: accelerators, node types and models that go before the shipped ones.

The file is the one that ``MESHFIT_CATALOGUE`` names, else ``~/.config/meshfit/catalogue.yaml``
(``XDG_CONFIG_HOME`` is heeded) where it exists. Its keys are those that ``meshfit catalogue KIND
NAME --json`` prints; an entry named like a shipped one changes the keys it gives and keeps the rest.
"""

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from meshfit.errors import InputError
from meshfit.files import read_yaml_mapping, validate

VARIABLE = "MESHFIT_CATALOGUE"

Count = Annotated[int, Field(gt=0, strict=True)]
Rate = str | Annotated[float, Field(gt=0)]


class Strict(BaseModel):
    """A block of the file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class UserAccelerator(Strict):
    """What is absent is that of the shipped accelerator of this name."""

    aliases: list[str] | None = None
    vendor: str | None = None
    device_type: Literal["cuda", "cpu", "hpu", "xla"] | None = None
    memory: str | Count | None = None
    memory_bandwidth: Rate | None = None
    peak_flops_per_s: dict[str, Annotated[float, Field(gt=0)]] | None = None
    matmul_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    link_bandwidth: Rate | None = None
    link_kind: str | None = None
    host_link_bandwidth: Rate | None = None
    source: str | None = None


class UserNodeType(Strict):
    """What is absent is that of the shipped node type of this name."""

    aliases: list[str] | None = None
    accelerators: Annotated[list[str], Field(min_length=1)] | None = None
    gpus_per_host: Count | None = None
    link_kind: Literal["switch", "mesh", "none"] | None = None
    link_domain: Count | None = None
    link_bandwidth: Rate | None = None
    nics: Count | None = None
    nic_bandwidth_per_accelerator: Rate | None = None
    rails: Annotated[bool, Field(strict=True)] | None = None
    oversubscription: Annotated[float, Field(ge=1)] | None = None
    source: str | None = None


class UserModel(Strict):
    """A model by name: its config, or a file or folder that holds it."""

    config: dict[str, Any] | str
    source: str | None = None


class UserCatalogue(Strict):
    schema_version: Literal[1]
    accelerators: dict[str, UserAccelerator] = {}
    node_types: dict[str, UserNodeType] = {}
    models: dict[str, UserModel | str] = {}


def user_catalogue() -> UserCatalogue:
    """What the person's file holds; empty without one.

    Raises:
        InputError: the file that ``MESHFIT_CATALOGUE`` names is not there, or anything wrong in it.
    """
    path = user_catalogue_path()
    return UserCatalogue(schema_version=1) if path is None else _read(path)


def user_catalogue_path() -> Path | None:
    """The file that is read; None without one."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    path = user_folder() / "catalogue.yaml"
    return path if path.is_file() else None


def user_folder() -> Path:
    """Where a person's own files lie: beside their catalogue, whether or not it exists."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().parent
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(config).expanduser() / "meshfit"


@cache
def _read(path: Path) -> UserCatalogue:
    if not path.is_file():
        raise InputError(f"{VARIABLE} names {path}, which is no file")
    return validate(UserCatalogue, read_yaml_mapping(path), str(path))
